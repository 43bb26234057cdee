# SPDX-License-Identifier: BSD-3-Clause
"""The record of the clock model: what was measured, what is said of it, and its goals."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results/model"


@pytest.fixture(scope="module")
def timing() -> dict:
    return json.loads((RESULTS / "timing.json").read_text())


def test_measurements_are_those_of_the_card(timing):
    spec = importlib.util.spec_from_file_location("timing_table", ROOT / "tools/timing_table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    measured = table.read_measurements()
    assert {v["variant"]: v["measured"] for v in timing["variants"]} == {
        name: round(clocks, 1) for name, clocks in measured.items()
    }
    assert {v["variant"] for v in timing["variants"] if not v["held_out"]} == set(table.CALIBRATION)


def test_goals_are_met(timing):
    assert timing["mean_error_percent"] <= 5
    assert timing["worst_error_percent"] <= 10
    assert len(timing["variants"]) >= 10
    assert timing["held_out_variants"] >= 4
    assert timing["held_out_worst_error_percent"] <= 10


def test_planted_faults_are_those_of_all_kernels():
    document = (ROOT / "docs/machine_model.md").read_text()
    faults = [
        int(re.search(pattern, document).group(1))
        for pattern in (
            r"(\d+) faults into the Hopper kernel",
            r"(\d+) into the Blackwell kernel",
            r"(\d+) faults of the kernel of `sm89/`",
        )
    ]
    summary = json.loads((RESULTS / "summary.json").read_text())
    assert summary["planted_faults"] == summary["planted_faults_seen"] == sum(faults)
    assert faults[1] == json.loads((RESULTS / "sm100.json").read_text())["planted_faults"]


def test_executed_kernels_are_all_kernels():
    sources = [p for p in (ROOT / "src/cuda").rglob("*") if p.suffix in (".cu", ".cuh")]
    kernels = sum(len(re.findall(r"__global__", p.read_text())) for p in sources)
    assert json.loads((RESULTS / "summary.json").read_text())["kernels_executed"] == kernels


def test_document_and_summary_follow(timing):
    document = (ROOT / "docs/machine_model.md").read_text()
    for v in timing["variants"]:
        held_out = "yes" if v["held_out"] else ""
        row = (
            f"| {v['variant']} | {v['measured']:.1f} | {v['predicted']:.1f} |"
            f" {v['error_percent']:+.1f} % | {held_out} |"
        )
        assert row in document
    for name, clocks in timing["b200_predictions"].items():
        assert any(
            line.startswith(f"| {name} | ") and f" | {clocks:.0f} | " in line
            for line in document.splitlines()
        ), name
    summary = json.loads((RESULTS / "summary.json").read_text())
    assert summary["timing_mean_error_percent"] == timing["mean_error_percent"]
    assert summary["timing_worst_error_percent"] == timing["worst_error_percent"]
    assert summary["held_out_variants"] == timing["held_out_variants"]
    predicted = timing["reference_b200"]["clocks_per_block_predicted"]
    assert summary["reference_b200_clocks_predicted"] == predicted
