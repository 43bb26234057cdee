# SPDX-License-Identifier: BSD-3-Clause
"""Budgets: named sets of numeric options, in every entry point that takes numerics."""

import inspect
import json
import subprocess
from typing import get_args

import numpy
import pytest
from conftest import random_qkv
from test_program import find_program

import open_vc_attn
from open_vc_attn import Numerics, _numerics, _openvc

CALLS = (open_vc_attn.attention, open_vc_attn.prepare_fp8, open_vc_attn.is_supported)
NAMES = tuple(_openvc.BUDGETS)


def run(q, k, v, **options):
    return open_vc_attn.attention_fp8(open_vc_attn.prepare_fp8(q, k, v, **options))


def test_names_are_those_of_the_library():
    assert get_args(_numerics.Budget) == NAMES
    assert _numerics.BUDGETS["balanced"] == Numerics()


@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_a_budget(call):
    assert inspect.signature(call).parameters["budget"].default is None


@pytest.mark.parametrize("budget", NAMES)
@pytest.mark.parametrize("call", [open_vc_attn.attention, run])
def test_a_budget_is_its_numeric_options(call, budget):
    qkv = random_qkv(300, 2, seed=3)
    expected = call(*qkv, numerics=_openvc.BUDGETS[budget])
    assert numpy.array_equal(call(*qkv, budget=budget), expected)


@pytest.mark.parametrize("factor", [2, 3])
def test_budgets_differ_and_more_time_leaves_less_error(factor):
    """The more the strong channels stand out, the sooner a step is worth its price."""
    q, k, v = random_qkv(700, 2, seed=4)
    q[..., :40] *= factor
    k[..., :40] *= factor
    q, k = 0.7 * q, 0.7 * k
    exact = open_vc_attn.exact_attention(q, k, v)
    errors = [
        numpy.linalg.norm(open_vc_attn.attention(q, k, v, budget=budget) - exact)
        for budget in NAMES
    ]
    assert errors[0] >= errors[1] >= errors[2]
    assert errors[0] > errors[2]


def test_fields_change_what_the_budget_says():
    fields = {"smooth_values": False}
    assert _numerics.as_numerics(fields, "best") == Numerics(**_openvc.BUDGETS["best"] | fields)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "budget", ["", "Fast", "bester", " fast", 1, 0.5, True, b"fast", ("fast",)]
)
def test_other_budgets_are_refused(call, budget):
    qkv = random_qkv(10, 1, seed=0)
    if call is open_vc_attn.is_supported:
        support = call(*qkv, budget=budget)
        assert not support and support.reason.startswith("budget: ")
        return
    with pytest.raises((TypeError, ValueError), match=r"^budget: .*fast, balanced, best"):
        call(*qkv, budget=budget)


def test_a_budget_and_all_numerics_are_one_too_many():
    with pytest.raises(ValueError, match=r"numerics: a Numerics beside budget='best'"):
        open_vc_attn.attention(*random_qkv(10, 1, seed=0), budget="best", numerics=Numerics())


def test_the_program_takes_budgets_before_single_options(tmp_path):
    def numerics(*words):
        report = tmp_path / "report.json"
        command = [
            find_program(),
            "error",
            "--family",
            "gaussian",
            "--tokens",
            "64",
            "--heads",
            "1",
        ]
        subprocess.run([*command, "--json", report, *words], check=True, capture_output=True)
        return json.loads(report.read_text())

    text = json.dumps(numerics("--max-extra-steps", "0", "--budget", "best"))
    assert '"max_extra_steps": 0' in text
    found = subprocess.run(
        [find_program(), "error", "--family", "gaussian", "--budget", "cheap"],
        capture_output=True,
        text=True,
    )
    assert found.returncode != 0 and "cheap" in found.stderr and "balanced" in found.stderr
