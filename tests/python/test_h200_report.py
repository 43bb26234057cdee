# SPDX-License-Identifier: BSD-3-Clause
"""Summaries and reports of GPU benchmark runs, from a made-up record."""

import copy
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "h200"))

import report
from contender_names import CUDNN_BF16, OPENVC_CALL, OPENVC_KERNEL
from summary import crossover_tokens, summarize

FA3 = "FlashAttention-3 BF16"
FA3_FP8 = "FlashAttention-3 FP8"


def timing(tflops):
    return {"p10_ms": 1.0, "p50_ms": 1.5, "p90_ms": 2.0, "tflops": tflops, "limits": {}}


def speeds(own, cudnn, fa3, fa3_fp8):
    return {
        "contenders": {
            OPENVC_KERNEL: timing(own),
            CUDNN_BF16: timing(cudnn),
            FA3: timing(fa3),
            FA3_FP8: timing(fa3_fp8),
        },
        "call_overhead_percent": 1.25,
        "failures": {},
    }


def short(own, peer):
    return {
        str(tokens): {
            "eager": {OPENVC_CALL: {"p50_ms": a}, CUDNN_BF16: {"p50_ms": b}},
            "graph": {},
            "failures": {},
        }
        for tokens, a, b in zip((512, 1024, 2048), own, peer, strict=True)
    }


@pytest.fixture
def record():
    return {
        "environment": {
            "date": "2026-01-02",
            "commit": "abc",
            "driver": "580",
            "gpu": "GPU",
            "multiprocessors": 132,
            "power_limit_watts": 700.0,
            "torch": "2",
            "cudnn": 9,
        },
        "kinds": {OPENVC_KERNEL: "openvc", CUDNN_BF16: "bf16", FA3: "bf16", FA3_FP8: "fp8"},
        "versions": {OPENVC_KERNEL: "1"},
        "absent": {"FlashAttention-4 BF16": "ModuleNotFoundError"},
        "excluded": {},
        "failures": [{"step": "lengths", "reason": "Traceback\nOutOfMemoryError: x"}],
        "steps": {
            "ceiling": {"products": [{"sustained_tflops": 1500.0}, {"sustained_tflops": 1600.0}]},
            "accuracy gaussian_32768": {
                "rel_l2": {OPENVC_KERNEL: 0.05, FA3: 0.002},
                "failures": {},
            },
            "speed 73397x7": speeds(1400.0, 560.0, 700.0, 900.0),
            "speed 73397x56": speeds(1410.0, 800.0, 690.0, 910.0),
            "preparation": {
                "73397x56": {
                    "prep_ms": 1.23456,
                    "floor_ms": 1.0,
                    "floor_ratio": 1.23456,
                    "percent_of_kernel": 1.0,
                }
            },
            "repair": {
                "shape": "73397x7",
                "cost_percent": {"0.005": 1.5},
                "rel_l2": {"capture": {"0.0": 0.02, "0.005": 0.015}},
            },
            "short 8 heads": short([3, 2, 1], [1, 2, 3]),
            "short 24 heads": short([3, 3, 1], [1, 2, 3]),
        },
    }


def test_summary(record):
    assert summarize(record) == {
        "date": "2026-01-02",
        "commit": "abc",
        "driver": "580",
        "kernel_tflops": {"73397x7": 1400.0, "73397x56": 1410.0},
        "best_bf16": {"name": FA3, "73397x7": 700.0, "73397x56": 690.0},
        "best_fp8": {"name": FA3_FP8, "73397x7": 900.0, "73397x56": 910.0},
        "ratio_bf16": 2.0,
        "ratio_fp8": 1.556,
        "wgmma_ceiling_tflops": 1600.0,
        "share_of_ceiling": 0.875,
        "rel_l2": {"gaussian_32768": 0.05},
        "prep_ms": 1.2346,
        "prep_floor_ratio": 1.235,
        "call_overhead_percent": 1.25,
        "crossover_S": 2048,
        "repair_cost_percent": 1.5,
        "repair_error_reduction_percent": 25.0,
    }


@pytest.mark.parametrize(
    "own, expected",
    [([1, 1, 1], 512), ([3, 1, 1], 1024), ([1, 3, 1], 2048), ([1, 1, 4], None)],
)
def test_crossover_holds_for_all_longer_calls(own, expected):
    assert crossover_tokens({"short 8 heads": short(own, [2, 2, 2])}) == expected


def test_what_was_not_measured_is_left_out(record):
    partial = copy.deepcopy(record)
    partial["steps"] = {"speed 73397x7": record["steps"]["speed 73397x7"]}
    summary = summarize(partial)
    assert "ratio_bf16" in summary
    assert not {"share_of_ceiling", "prep_ms", "crossover_S", "rel_l2"} & set(summary)
    assert summarize({**record, "steps": {}})["date"] == "2026-01-02"


def test_page(record):
    page = report.markdown(summarize(record), record)
    assert "| Open-VC kernel | 1400 | 1410 | 5.00 % |" in page
    assert "2.00 times FlashAttention-3 BF16" in page
    assert "88 % of the 1600 TFLOP/s" in page
    assert "FlashAttention-4 BF16: not installed" in page
    assert "lengths: OutOfMemoryError: x" in page
    report.markdown(summarize({**record, "steps": {}}), {**record, "steps": {}})


def test_table_goes_between_the_marks(record, tmp_path, monkeypatch):
    (tmp_path / "results.json").write_text(json.dumps(record))
    readme = tmp_path / "page.md"
    readme.write_text(f"before\n{report.BEGIN_MARK}\nold\n{report.END_MARK}\nafter\n")
    monkeypatch.setattr(report, "write_chart", lambda *_: False)
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path), "--insert", str(readme)])
    report.main()
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "Open-VC kernel" in text and "old" not in text
    first = text, (tmp_path / "README.md").read_text()
    report.main()
    assert (readme.read_text(), (tmp_path / "README.md").read_text()) == first
    readme.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the lines"):
        report.main()


def test_soak_is_reported(record):
    assert "soak_cases" not in summarize(record)
    record["soak"] = {
        "soak_cases": 700,
        "soak_failures": 2,
        "seconds": 30.0,
        "seed": 5,
        "kinds": {"LSE": 300},
    }
    found = summarize(record)
    assert (found["soak_cases"], found["soak_failures"]) == (700, 2)
    page = report.markdown(found, record)
    assert "700 random calls in 30 seconds (seed 5), 2 failures" in page
    assert "| LSE | 300 |" in page


def test_crossover_of_graph_replays(record):
    steps = {"short 8 heads": short([1, 1, 1], [2, 2, 2])}
    graph = {"512": (3, 2), "1024": (3, 2), "2048": (1, 2)}
    for tokens, (own, peer) in graph.items():
        steps["short 8 heads"][tokens]["graph"] = {
            OPENVC_CALL: {"p50_ms": own},
            CUDNN_BF16: {"p50_ms": peer},
        }
    assert crossover_tokens(steps) == 512
    assert crossover_tokens(steps, "graph") == 2048
