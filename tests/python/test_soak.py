# SPDX-License-Identifier: BSD-3-Clause
"""The soak of tests/gpu finds faults that are planted in results, and none in results without."""

import json
import random
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
import soak  # noqa: E402
import soak_case  # noqa: E402


def test_agrees_with_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak_case, "MAX_SCORES", 100_000)
    path = tmp_path / "soak.json"
    arguments = ["--device", "cpu", "--seconds", "60", "--cases", "60", "--seed", "3"]
    assert soak.main([*arguments, "--json", str(path)]) == 0
    assert capsys.readouterr().out.endswith("60 passed, 0 failed\n")
    summary = json.loads(path.read_text())
    assert (summary["soak_cases"], summary["soak_failures"], summary["seed"]) == (60, 0, 3)
    assert summary["failed"] == []
    assert all(0 <= worst["value"] <= 1 for worst in summary["worst"].values())
    assert set(summary["kinds"]) >= {
        "bfloat16", "float16", "batch > 1", "cross-attention", "causal", "causal, rows without keys",
        "at most 8 keys", "at most 8 queries", "repair", "LSE", "softmax scale", "side stream", "scores below zero",
        "one call", "prepared, reused", *(f"layout {name}" for name in soak_case.LAYOUTS),
    }  # fmt: skip


def last_row(out, lse):
    out[-1, -1, -1] = out[0, 0, 0]


def scaled_row(out, lse):
    out[0, 3, 0] *= 1.5


def zeroed_tile(out, lse):
    out[:, -5:, -1] = 0


def swapped_heads(out, lse):
    out[:, :, [0, 1]] = out[:, :, [1, 0]]


def nan(out, lse):
    out[0, 0, 0, 5] = torch.nan


def shifted_lse(out, lse):
    lse[0, 1, 2] += 0.5


def base_two(out, lse):
    lse /= 0.6931471805599453


def missing_lse(out, lse):
    lse[-1, -1, -1] = -torch.inf


FAULTS = [
    last_row, scaled_row, zeroed_tile, swapped_heads, nan, shifted_lse, base_two, missing_lse,
]  # fmt: skip


def plain_case(queries, keys):
    case = soak_case.draw_case(random.Random(1), "cpu")
    case.queries, case.keys, case.batch, case.heads = queries, keys, 2, 2
    case.causal, case.budget, case.with_lse, case.scale = False, 0.0, True, None
    case.form, case.options["numerics"] = "one call", soak_case.Numerics()
    case.operands = []
    for length in (queries, keys, keys):
        operand = soak_case.Operand(random.Random(2), (2, length, 2, 128), torch.bfloat16, "cpu")
        operand.view = torch.randn(2, length, 2, 128).bfloat16()
        case.operands.append(operand)
    return case


@pytest.mark.parametrize("queries, keys", [(300, 400), (20, 33), (9, 3)])
def test_planted_faults_are_found(queries, keys):
    torch.manual_seed(0)
    case = plain_case(queries, keys)
    good = soak_case.call(case, case.tensors())
    assert soak_case.judge_result(case, good).fault == ""
    for plant in FAULTS:
        out, lse = (x.clone() for x in good)
        plant(out, lse)
        assert soak_case.judge_result(case, (out, lse)).fault, plant.__name__


@pytest.mark.parametrize("keys", [2, 5, 17])
def test_a_missing_last_key_is_found(keys):
    torch.manual_seed(0)
    case = plain_case(30, keys)
    q, k, v = case.tensors()
    fault = soak_case.judge_result(case, soak_case.call(case, [q, k[:, :-1], v[:, :-1]])).fault
    assert fault


def test_a_key_too_many_is_found():
    torch.manual_seed(0)
    case = plain_case(30, 63)
    q, k, v = case.tensors()
    q.abs_(), k.abs_().neg_()  # against scores around zero, a key of zeros hardly counts
    assert not soak_case.judge_result(case, soak_case.call(case, [q, k, v])).fault
    padded = [torch.cat([x, torch.zeros_like(x[:, :1])], 1) for x in (k, v)]
    assert soak_case.judge_result(case, soak_case.call(case, [q, *padded])).fault


def test_an_exception_is_a_finding(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("sticky")

    monkeypatch.setattr(soak, "run_case", fail)
    assert soak.main(["--device", "cpu", "--seconds", "60"]) == 1
    assert capsys.readouterr().out.endswith(f"0 passed, {soak.MAX_FAILURES} failed\n")


def test_runs_that_differ_are_found(monkeypatch):
    case = plain_case(30, 40)
    case.fill = lambda rng: None
    real, calls = soak_case.call, []

    def drift(*args):
        calls.append(args)
        out, lse = real(*args)
        return (out + 0.01 if len(calls) == 2 else out), lse

    monkeypatch.setattr(soak_case, "call", drift)
    assert soak_case.run_case(random.Random(1), case, "cpu").fault == "two runs differ"
