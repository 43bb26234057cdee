# SPDX-License-Identifier: BSD-3-Clause
"""The GPU benchmark's own logic: arguments, budget, resuming, captures, errors. No GPU needed."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "h200"
sys.path.insert(0, str(FOLDER))

import attention as program  # noqa: E402
import captured  # noqa: E402
import contenders  # noqa: E402
import measurements  # noqa: E402
import report  # noqa: E402
import steps  # noqa: E402
from accuracy import ExactRows  # noqa: E402
from contender_names import (  # noqa: E402
    DEFAULT_PLAN,
    OPENVC_CALL,
    PLANS,
    call_name,
    kernel_name,
)
from contenders import all_contenders  # noqa: E402
from inputs import Inputs, attention_flops  # noqa: E402
from measurements import MIN_ROUNDS, affordable_rounds  # noqa: E402
from paired_timing import Plan, Timing  # noqa: E402
from results import Results  # noqa: E402
from summary import CAPTURED, CAUSAL, SPEED, summarize  # noqa: E402

ENVIRONMENT = {"commit": "a", "driver": "1", "gpu": "G", "torch": "2"}


def arguments(*more):
    return program.parse_arguments(["--out", "x", *more])


def test_arguments():
    assert arguments().budget == program.DEFAULT_BUDGET
    assert arguments("--quick").budget == program.QUICK_BUDGET
    assert arguments("--quick", "--budget", "9").budget == 9.0
    both = arguments("--minidit", "m", "--clips", "c")
    assert (both.minidit, both.clips) == (Path("m"), Path("c"))


@pytest.mark.parametrize(
    "wrong", [["--minidit", "m"], ["--clips", "c"], ["--rounds", "0"], ["--unknown"]]
)
def test_wrong_arguments(wrong, capsys):
    with pytest.raises(SystemExit) as refused:
        arguments(*wrong)
    assert refused.value.code == 2
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "installed, claimed, measured",
    [
        ("abc123", None, "abc123"),
        ("abc123", "abc", "abc123"),
        ("unknown", "abc", "abc"),
        ("unknown", None, "unknown"),
        ("abc123", "abd", None),
        ("abc123-dirty", "abc124", None),
    ],
)
def test_commit_is_that_of_the_installed_package(installed, claimed, measured, monkeypatch):
    monkeypatch.setattr(program.open_vc_attn, "info", lambda: {"commit": installed})
    if measured is not None:
        assert program.measured_commit(claimed) == measured
        return
    with pytest.raises(SystemExit, match=f"--commit: {claimed}.*is of {installed}"):
        program.measured_commit(claimed)


def step(name, seconds, log=None, fails=False):
    def measure(share):
        if log is not None:
            log.append((name, round(share)))
        if fails:
            raise RuntimeError("planted")
        return {"share": share}

    return steps.Step(name, seconds, measure)


def test_budget_is_shared_by_expected_seconds(tmp_path):
    log = []
    results = Results(tmp_path, 100.0, resume=False)
    planned = [step("a", 30, log), step("b", 10, log), step("c", 10, log)]
    steps.run(planned, results, lambda: None)
    # Nothing takes time here, so what a step leaves over goes to the later ones.
    assert log == [("a", 60), ("b", 50), ("c", 100)]


def test_what_the_budget_cannot_pay_is_left_out(tmp_path):
    log = []
    results = Results(tmp_path, 10.0, resume=False)
    steps.run([step("large", 60, log), step("small", 3, log)], results, lambda: None)
    assert [name for name, _ in log] == ["small"]
    assert results.data["failures"] == [
        {"step": "large", "reason": "left out: the time budget is spent"}
    ]


def test_every_step_is_on_disk_at_once(tmp_path):
    results = Results(tmp_path, 100.0, resume=False)
    seen = []

    def look():
        seen.append(list(json.loads((tmp_path / "results.json").read_text())["steps"]))

    steps.run([step("a", 1), step("b", 1)], results, look)
    assert seen == [["a"], ["a", "b"]]


def test_resume_runs_what_is_missing_and_what_failed(tmp_path):
    first = Results(tmp_path, 100.0, resume=False)
    first.describe(environment=ENVIRONMENT)
    steps.run([step("a", 1), step("b", 1, fails=True)], first, lambda: None)
    assert "planted" in first.data["failures"][0]["reason"]
    log = []
    second = Results(tmp_path, 100.0, resume=True)
    second.describe(environment=ENVIRONMENT)
    steps.run([step("a", 1, log), step("b", 1, log)], second, lambda: None)
    assert log == [("b", 100)]
    assert list(second.steps) == ["a", "b"] and second.data["failures"] == []


@pytest.mark.parametrize("what", sorted(ENVIRONMENT))
def test_resume_does_not_mix_records(what, tmp_path):
    first = Results(tmp_path, 100.0, resume=False)
    first.describe(environment=ENVIRONMENT)
    steps.run([step("a", 1)], first, lambda: None)
    second = Results(tmp_path, 100.0, resume=True)
    with pytest.raises(SystemExit, match=f"{what}: measured with .*, now other; start without"):
        second.describe(environment={**ENVIRONMENT, what: "other"})


def test_resume_refuses_an_older_record(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 1, "running": None}))
    with pytest.raises(SystemExit, match="version 1 of the record; expected 2"):
        Results(tmp_path, 1.0, resume=True)


def test_who_ended_the_process_is_left_out(tmp_path):
    first = Results(tmp_path, 100.0, resume=False)
    first.data["running"] = "culprit"
    first.save()
    assert list(Results(tmp_path, 100.0, resume=True).excluded) == ["culprit"]


@pytest.mark.parametrize(
    "seconds, expected", [(100.0, 7), (45.0, 4), (30.0, 3), (1.0, MIN_ROUNDS), (-5.0, MIN_ROUNDS)]
)
def test_rounds(seconds, expected):
    assert affordable_rounds(seconds, 10.0, 7) == expected


def test_captured_inputs_come_first_with_every_plan():
    results = type("Record", (), {"steps": {}, "data": {}})()
    planned = steps.all_steps(None, results, lambda: None)
    names = [s.name for s in planned]
    assert names[:4] == ["copy", SPEED + CAPTURED, CAUSAL + CAPTURED, "repair"]
    assert len(set(names)) == len(names)
    assert sum(s.seconds for s in planned) <= program.DEFAULT_BUDGET
    without = [s.name for s in steps.all_steps(None, results, None)]
    assert set(names) - set(without) == {SPEED + CAPTURED, CAUSAL + CAPTURED}
    assert CAPTURED == "captured 75600x24"
    assert len(captured.choose_heads()) == 24
    crop = captured.WAN_720P
    assert crop.frames // 4 * (crop.height // 8) * (crop.width // 8) == 75_600


def test_contenders_have_names_of_their_own():
    names = [contender.name for contender in all_contenders()]
    assert len(set(names)) == len(names)
    for plan in PLANS:
        assert kernel_name(plan) in names and call_name(plan) in names
    assert set(names) >= steps.FEW_PLANS


def test_heads_are_chosen_evenly():
    chosen = captured.choose_heads()
    assert len(set(chosen)) == len(chosen)
    for clip in captured.CLIPS:
        assert sorted(s.layer for s in chosen if s.clip == clip.file) == list(range(8))
    for layer in range(8):
        of_layer = [s for s in chosen if s.layer == layer]
        assert {s.sigma for s in of_layer} == set(captured.NOISE_LEVELS)
        assert {s.head for s in of_layer} == {0, 1}


FAKE_MODEL = """
import torch
calls = []
def load_model(weights, device):
    return device
def load_video(path, start, frames):
    value = len(open(path, 'rb').read())
    return torch.full((min(frames, 8), 16, 24, 3), value, dtype=torch.uint8)[:frames]
def fit(video, height, width):
    return video[:, :height, :width].float()
def qkv(model, video, sigma, layers, seed=0):
    base = 1000 * float(video.flatten()[0]) + 100 * sigma
    def make(layer, which):
        return torch.stack([torch.full((12, 128), base + 10 * layer + 3 * h + which) for h in (0, 1)], 1).bfloat16()
    return {l: tuple(make(l, w) for w in (0, 1, 2)) for l in layers}, (2, 2, 3)
"""


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "minidit.py").write_text(FAKE_MODEL)
    (tmp_path / "minidit_weights.safetensors").write_bytes(b"w")
    for length, clip in enumerate(captured.CLIPS, 1):
        (tmp_path / clip.file).write_bytes(b"x" * length)
    return tmp_path


def test_captures_are_assembled_head_by_head(folders):
    made = captured.capture(folders, folders, crop=captured.Crop(8, 16, 24), device="cpu")
    assert made.inputs.q.shape == (1, 12, 24, 128) and made.inputs.q.dtype == torch.bfloat16
    clips = [clip.file for clip in captured.CLIPS]
    for index, source in enumerate(captured.choose_heads()):
        base = 1000 * (clips.index(source.clip) + 1) + 100 * source.sigma
        base += 10 * source.layer + 3 * source.head
        for which, tensor in enumerate(made.inputs.tensors):
            expected = torch.full((12, 128), base + which).bfloat16()
            assert torch.equal(tensor[0, :, index], expected)
    assert made.about["grid"] == [2, 2, 3]
    assert [head["layer"] for head in made.about["heads"]] == list(range(8)) * 3
    assert set(made.about["clips_sha256"]) == set(clips)


def test_captures_need_their_files(folders):
    with pytest.raises(ValueError, match="8 frames from frame 640 on; expected at least 43"):
        captured.capture(folders, folders, device="cpu")
    (folders / "tree.avi").unlink()
    with pytest.raises(FileNotFoundError, match=r"tree\.avi: not found; expected"):
        captured.capture(folders, folders, device="cpu")


@pytest.mark.parametrize(
    "wanted, frames", [(3, [0, 1, 2]), (5, [0, 1, 2, 3, 2]), (7, [0, 1, 2, 3, 2, 1, 0])]
)
def test_a_short_clip_goes_on_backwards(wanted, frames):
    class Model:
        @staticmethod
        def load_video(path, start, count):
            return torch.arange(4).view(4, 1, 1, 1)[:count]

    crop = captured.Crop(wanted, 8, 8)
    assert captured._frames(Model, Path("clip"), 0, crop).flatten().tolist() == frames
    with pytest.raises(ValueError, match="4 frames from frame 0 on; expected at least 5"):
        captured._frames(Model, Path("clip"), 0, captured.Crop(8, 8, 8))


def random_inputs(queries, keys, heads, causal=False):
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, n, heads, 128) for n in (queries, keys, keys)]
    return Inputs(*(torch.randn(s, generator=generator).bfloat16() for s in shapes), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [40, 55])
def test_error_is_that_of_exact_attention(causal, keys):
    inputs = random_inputs(40, keys, 3, causal)
    q, k, v = (x.double().transpose(1, 2) for x in inputs.tensors)
    mask = torch.ones(40, keys, dtype=torch.bool).tril(keys - 40) if causal else None
    output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    output = output.transpose(1, 2).clone()
    exact = ExactRows(inputs, rows=16)
    assert max(exact.relative_l2_of_heads(output)) < 1e-12
    output[:, :, 1] *= 1.5
    found = exact.describe(output)
    assert found["rel_l2_heads"] == pytest.approx([0.0, 0.5, 0.0], abs=1e-9)
    assert found["rel_l2_worst"] == pytest.approx(0.5)
    assert found["rel_l2"] == pytest.approx(0.5 / math.sqrt(3))
    output[:, :, 2] = math.nan
    assert math.isnan(exact.describe(output)["rel_l2_worst"])


def test_causal_work_is_half():
    assert attention_flops(10, 20, 3) == 4 * 10 * 20 * 3 * 128
    inputs = random_inputs(10, 20, 3)
    assert inputs.with_causal_mask().flops == inputs.flops / 2
    assert inputs.with_causal_mask().causal and not inputs.causal


class Exact(contenders.Contender):
    """Stands for the peers."""

    name = "Exact BF16"
    kind = "bf16"

    def version(self):
        return "exact 1"

    def set_up(self, inputs):
        q, k, v = (x.transpose(1, 2) for x in inputs.tensors)
        attention = torch.nn.functional.scaled_dot_product_attention
        return contenders.Call(
            lambda: attention(q, k, v, is_causal=inputs.causal), lambda out: out.transpose(1, 2)
        )


class Broken(Exact):
    name = "Broken FP8"
    kind = "fp8"

    def set_up(self, inputs):
        raise ValueError("planted")


class NotInstalled(Exact):
    name = "Absent"

    def version(self):
        raise ImportError("not here")


class NoSensors:
    def describe(self, periods):
        return {}


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    """The benchmark on the CPU; only the clock is made up."""

    def rounds(launches, *_, **__):
        return {name: Timing([2.0], [2.0]) for name in launches}

    monkeypatch.setattr(measurements, "paired_rounds", rounds)
    monkeypatch.setattr(measurements, "estimate_ms", lambda *_: 1.0)
    monkeypatch.setattr(measurements, "warm_up", lambda *_: None)
    results = Results(tmp_path, 100.0, resume=False)
    taking_part = [c for c in all_contenders() if c.kind == "openvc"]
    taking_part += [Exact(), Broken(), NotInstalled()]
    made = measurements.Benchmark(taking_part, NoSensors(), results)
    results.describe(
        environment=ENVIRONMENT
        | {"date": "d", "multiprocessors": 1, "power_limit_watts": 1.0, "cudnn": 1},
        versions=made.versions,
        absent=made.absent,
        kinds={c.name: c.kind for c in taking_part},
        scopes={c.name: c.scope for c in taking_part},
    )
    return made, results


def test_a_whole_run_on_the_cpu(benchmark):
    made, results = benchmark
    inputs = random_inputs(320, 320, 2)
    plan = Plan(7, 0.1, 0.1)
    todo = [
        steps.Step(SPEED + CAPTURED, 5, lambda s: made.speed(inputs, plan, s)),
        steps.Step(SPEED + "320x2", 5, lambda s: made.speed(inputs, plan, s, steps.FEW_PLANS)),
        steps.Step(
            CAUSAL + CAPTURED,
            5,
            lambda s: made.speed(inputs.with_causal_mask(), plan, s, steps.FEW_PLANS),
        ),
        steps.Step("repair", 5, lambda _: made.repair(inputs, CAPTURED, [0.01, 0.04])),
        steps.Step("accuracy small", 5, lambda _: made.accuracy(inputs)),
    ]
    steps.run(todo, results, lambda: None)
    assert results.data["failures"] == []
    found = results.steps[SPEED + CAPTURED]
    assert set(found["failures"]) == {"Broken FP8"} and "Absent" in results.data["absent"]
    every = found["contenders"]
    for plan_name in (DEFAULT_PLAN, *PLANS):
        kernel, call = every[kernel_name(plan_name)], every[call_name(plan_name)]
        assert kernel["rel_l2"] == call["rel_l2"] < 0.1
        assert len(kernel["plans"]) == len(kernel["rel_l2_heads"]) == 2
    for count in (0, 1, 2, 4):
        plans = every[kernel_name(f"{count} extra step{'' if count == 1 else 's'}")]["plans"]
        assert [plan["extra_steps"] for plan in plans] == [count] * 2
    assert every["Exact BF16"]["rel_l2"] < 0.005
    few = results.steps[SPEED + "320x2"]["contenders"]
    assert set(every) - set(few) == steps.FEW_PLANS
    causal = results.steps[CAUSAL + CAPTURED]
    assert causal["flops"] == found["flops"] / 2
    assert 0 < causal["contenders"]["Exact BF16"]["rel_l2"] < 0.005
    assert causal["contenders"][OPENVC_CALL]["rel_l2"] < 0.1
    repair = results.steps["repair"]
    assert set(repair["cost_percent"]) == {"0.01", "0.04"}
    assert repair["rel_l2"][CAPTURED]["0.04"] < repair["rel_l2"][CAPTURED]["0.0"]
    page = report.markdown(summarize(results.data), results.data)
    assert "| **Open-VC, default plan** | 0 in every head |" in page
    assert "on captured 75600x24" not in page
    assert "Broken FP8, speed captured 75600x24: failed: ValueError: planted" in page


def fake_python(tmp_path, statuses):
    """Stands in for the interpreter: attention.py ends with one status after the other."""
    script = tmp_path / "python"
    (tmp_path / "statuses").write_text("\n".join(map(str, statuses)) + "\n")
    script.write_text(
        "#!/usr/bin/env bash\n"
        f"cd '{tmp_path}'\n"
        'echo "$(basename "$1") ${*:2}" >>calls\n'
        "[[ $1 == */attention.py ]] || exit 0\n"
        'mkdir -p out; echo "{}" >out/results.json\n'
        "status=$(head -n 1 statuses); sed -i 1d statuses; exit $status\n"
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    "statuses, attempts, final", [([0], 1, 0), ([139, 3, 0], 3, 0), ([2], 1, 2), ([1] * 9, 4, 1)]
)
def test_run_script(statuses, attempts, final, tmp_path):
    python = fake_python(tmp_path, statuses)
    done = subprocess.run(
        [FOLDER / "run.sh", tmp_path / "out", "100", "--minidit", "m"],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert done.returncode == final, done.stderr
    assert [call.split()[0] for call in calls] == ["attention.py"] * attempts + ["report.py"]
    assert all("--resume --budget" in c and c.endswith("--minidit m") for c in calls[:attempts])


@pytest.mark.parametrize("wrong", [[], ["out"], ["out", "soon"]])
def test_run_script_usage(wrong):
    done = subprocess.run([FOLDER / "run.sh", *wrong], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Usage: run.sh" in done.stdout
