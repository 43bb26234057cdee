# SPDX-License-Identifier: BSD-3-Clause
"""The record of quality and speed, and the table of the documentation. No GPU needed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "h200"))

import quality as program  # noqa: E402
from paired_timing import Timing  # noqa: E402

from open_vc_attn import cli  # noqa: E402
from open_vc_attn.quality import model  # noqa: E402

NEEDED = ["--model", "m", "--frames", "synthetic", "--out"]
SMALL = ["--count", "8", "--size", "16", "24", "--steps", "2", "--seeds", "2"]
GOOD = "library:max_extra_steps=2,score_error_target=0"


def timing(milliseconds):
    return Timing(launches=[milliseconds] * 3, round_medians=[milliseconds] * 3)


@pytest.fixture
def on_a_cpu(monkeypatch):
    """Runs the program with a random model on the CPU and times that are made up."""

    def time_calls(inputs, presets, rounds, monitor):
        assert inputs.q.shape == (1, 12, 4, 128) and rounds == 7
        times = {program.PEER: timing(3.0)}
        for index, preset in enumerate(presets):
            times[f"{preset.key} kernel"] = timing(1.0 + index)
            times[f"{preset.key} call"] = timing(1.5 + index)
        return times, "fa3-fwd 0"

    monkeypatch.setattr(program, "load_model", lambda *_: model.random_model("cpu"))
    monkeypatch.setattr(program, "time_calls", time_calls)
    monkeypatch.setattr(program, "environment", lambda *_: {"gpu": "none"})


def test_the_record(on_a_cpu, tmp_path):
    more, out = tmp_path / "more.json", tmp_path / "x.json"
    more.write_text('{"lse_rms_nats": 0.002}')
    words = [*NEEDED, str(out), *SMALL, "--merge", str(more)]
    assert program.main([*words, "--preset", "default=library", "--preset", f"best={GOOD}"]) == 0
    record = json.loads(out.read_text())
    errors = {"numerics", "velocity_error_percent", "psnr_db", "ssim"}
    speeds = {"tflops", "ratio_fa3_bf16", "call_tflops", "call_ratio_fa3_bf16"}
    assert record.keys() == {
        *("default", "best", "sage2_like", "reference", "lse_rms_nats", "about")
    }
    for key in ("default", "best"):
        assert record[key].keys() == errors | speeds
    for key in ("sage2_like", "reference"):
        assert record[key].keys() == errors
    assert record["best"]["velocity_error_percent"] < record["default"]["velocity_error_percent"]
    assert (record["default"]["ratio_fa3_bf16"], record["best"]["ratio_fa3_bf16"]) == (3, 1.5)
    assert record["default"]["call_ratio_fa3_bf16"] == 2
    # 4 S^2 H D of 12 tokens and 4 heads in a millisecond.
    assert record["default"]["tflops"] == round(4 * 12**2 * 4 * 128 / 1e-3 * 1e-12, 1)
    assert record["about"]["study"]["seeds"] == 2
    assert record["about"]["flash_attention_3"]["version"] == "fa3-fwd 0"


def test_a_merged_file_replaces_nothing(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"default": 1, "more": 2}')
    with pytest.raises(ValueError, match="default; expected an object of new keys"):
        program.merged({"default": 0}, [path])
    assert program.merged({}, [path]) == {"default": 1, "more": 2}
    path.write_text("[1]")
    with pytest.raises(ValueError, match="no object"):
        program.merged({}, [path])


@pytest.mark.parametrize(
    "words, text",
    [
        (["--preset", "fast"], "'fast'; expected KEY=library"),
        (["--preset", "fast=int8 rne pc"], "expected KEY=library"),
        (["--preset", "reference=library"], "none of sage2_like, reference"),
        (["--preset", "fast=library:x=1"], "'x=1' in 'library:x=1'"),
        (["--preset", "a=library", "--preset", "a=library"], "a, a; expected each key once"),
        (["--merge", "nowhere.json"], "--merge: nowhere.json; expected a file"),
    ],
)
def test_refused_arguments(words, text, capsys):
    with pytest.raises(SystemExit) as refused:
        program.parse_arguments([*NEEDED, "x.json", *words])
    assert refused.value.code == 2 and text in capsys.readouterr().err


def test_presets_are_arguments_of_the_library():
    found = program.parse_arguments([*NEEDED, "x", "--preset", f"best={GOOD}"]).preset
    assert found == [program.Preset("best", GOOD)]
    assert found[0].arguments == {"numerics": {"max_extra_steps": 2, "score_error_target": 0.0}}
    assert program.parse_arguments([*NEEDED, "x"]).preset == [program.Preset("default", "library")]
    assert program.Preset("default", "library").arguments == {}


@pytest.fixture(scope="module")
def tables():
    path = ROOT / "tools" / "quality_table.py"
    spec = importlib.util.spec_from_file_location("quality_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_of_the_documentation(tables, tmp_path):
    data, document = tmp_path / "x.json", tmp_path / "x.md"
    words = ["quality", "--model", "random", *SMALL, "--numerics", "exact", "n0 exact exact"]
    assert cli.run([*words, "--json", str(data)]) == 0
    document.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    for _ in range(2):
        assert tables.main([str(data), str(document)]) == 0
    lines = document.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after") and "old" not in lines
    assert "synthetic from frame 0, 8 frames of 16 x 24: 12 tokens; 2 steps, 2 seeds" in lines[3]
    assert lines[7] == "| `exact` | 0.000 | 0.00, 0.00, 0.00 | same | 1.00000 |"
    assert lines[8].startswith("| `n0 exact exact` | ")


def test_the_document_has_a_place_for_the_table(tables):
    text = tables.DOCUMENT.read_text(encoding="utf-8")
    assert tables.inserted(text, "x").count("\n\nx\n\n") == 1
    with pytest.raises(ValueError, match="expected one line"):
        tables.inserted(text.replace(tables.END, ""), "x")


def test_the_document_names_all_numerics():
    from open_vc_attn.quality import numerics

    text = tables_free((ROOT / "docs" / "quality.md").read_text(encoding="utf-8"))
    for name in ("bf16", "library", "table", *set(numerics.SIMULATED) - {"exact"}):
        assert f"`{name}`" in text


def tables_free(text):
    """Without the measured table, which names them anyway."""
    return text.partition("<!-- quality table")[0]


def test_the_budgets_in_the_document_are_those_of_the_record():
    record = json.loads((ROOT / "docs" / "results" / "h200" / "quality.json").read_text())
    text = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    text = text.partition("## Errors and speed on the same tensors")[2].partition("Kernels are")[0]
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| `")]
    found = {row[0].strip(" `"): [float(cell) for cell in row[1:] if cell.strip()] for row in rows}
    names = {
        "library:budget=fast": "fast",
        "library`, budget balanced": "default",
        "library:budget=best": "best",
        "sage2-like": "sage2_like",
        "reference": "reference",
    }
    assert found.keys() == names.keys()
    for row, key in names.items():
        measured = record[key]
        expected = [
            round(measured["velocity_error_percent"], 3),
            round(measured["psnr_db"], 2),
            round(measured["ssim"], 5),
        ]
        steps = found[row][3:4]  # of the plans, which the record does not hold
        if "tflops" in measured:
            expected += [
                *steps,
                round(measured["tflops"]),
                round(measured["ratio_fa3_bf16"], 2),
                round(measured["call_ratio_fa3_bf16"], 2),
            ]
        assert found[row] == expected
