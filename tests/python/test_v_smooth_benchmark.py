# SPDX-License-Identifier: BSD-3-Clause
"""The record of what V-Smooth costs. No GPU needed."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "h200"))

import v_smooth as program  # noqa: E402
from inputs import Inputs  # noqa: E402

from open_vc_attn.baselines import VSmoothState, prepare_vc  # noqa: E402
from open_vc_attn.baselines import state as module  # noqa: E402
from open_vc_attn.quality import model  # noqa: E402

MS = {
    program.ATTENTION: 10.0,
    program.KERNEL: 9.0,
    program.COLD: 2.0,
    program.WARM: 1.0,
    program.PLAIN: 0.5,
    program.SORTED: 0.75,
    program.DEMEANED: 1.0,
}


def test_overheads():
    found = program.overheads(MS)
    assert found["step_with_cold_grouping"] == 25 and found["step_with_warm_grouping"] == 15
    # 40 steps: cold at 0, warm at 4 and 8; means in 10 steps, sorted rows in 30.
    assert found["all_steps_grouping_alone"] == pytest.approx(10 * (2 + 1 + 1) / 40)
    assert found["all_steps"] == pytest.approx(
        10 * (2 + 1 + 1 + 10 * 0.5 + 30 * 0.25) / 40, abs=1e-3
    )


@pytest.mark.parametrize("steps", [1, 8, 18, 40, 50])
def test_kinds_of_steps_are_those_of_the_state(steps, monkeypatch):
    seen = []
    grouped = (torch.arange(3)[None], torch.zeros(1, 1, 128))
    monkeypatch.setattr(
        module, "group", lambda *x: seen.append("cold" if x[3] is None else "warm") or grouped
    )
    state, kinds = VSmoothState(steps), []
    qkv = [torch.zeros(3, 1, 128)] * 3
    for step in range(steps):
        state.begin_step(step)
        before = len(seen)
        prepared = prepare_vc(*qkv, state=state, layer=0)
        smooth = "reused" if prepared.v.means is not None else "late"
        kinds.append(seen[-1] if len(seen) > before else smooth)
    assert kinds == program.kinds_of_steps(steps)


def test_everything_timed_runs():
    q, k, v = (torch.randn(1, 150, 2, 128).bfloat16() for _ in range(3))
    launches = program.launches_of(Inputs(q, k, v))
    assert launches.keys() == MS.keys()
    for launch in launches.values():
        launch()


@pytest.fixture
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(program, "milliseconds", lambda *_: MS)
    monkeypatch.setattr(program, "gaussian", lambda *_: None)
    monkeypatch.setattr(program, "simulation", lambda *_: {"ms": 1.0, "peak_gib": 2.0})
    monkeypatch.setattr(program, "environment", lambda *_: {"gpu": "none"})
    monkeypatch.setattr(program, "load_model", lambda *_: model.random_model("cpu"))


def test_the_record(on_a_cpu, tmp_path, capsys):
    out = tmp_path / "x.json"
    assert program.main(["--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert record.keys() == {"v_smooth_overhead_percent", "v_smooth"}
    assert record["v_smooth_overhead_percent"] == program.overheads(MS)["all_steps"]
    assert set(record["v_smooth"]["costs"]) == {"73397x7", "39600x7"}
    assert "all_steps" in capsys.readouterr().out
    small = ["--frames", "synthetic", "--count", "8", "--size", "16", "24", "--steps", "2"]
    words = ["--out", str(out), "--model", "m", *small, "--start", "0", "--seeds", "1"]
    names = ["vc-attention", "exact exact km"]
    assert program.main([*words, "--numerics", *names]) == 0
    rows = json.loads(out.read_text())["v_smooth"]["study"]["numerics"]
    assert [row["name"] for row in rows] == names
    assert program.main([*words, "--budget", "-1"]) == 1  # nothing begins


@pytest.mark.parametrize(
    "words, text",
    [
        (["--model", "m"], "--model and --frames go together"),
        (["--numerics", "vc"], "numerics: 'vc'; expected"),
        (["--steps", "4", "--numerics", "vc-attention:grouped_steps=5"], "grouped_steps: 5"),
    ],
)
def test_wrong_arguments(words, text, capsys):
    with pytest.raises(SystemExit):
        program.parse_arguments(["--out", "x", *words])
    assert text in capsys.readouterr().err
