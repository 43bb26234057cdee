# SPDX-License-Identifier: BSD-3-Clause
"""Summaries and reports of GPU benchmark runs, from a made-up record."""

import copy
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "h200"))

import main_tables
import report
from contender_names import (
    CUDNN_BF16,
    OPENVC_CALL,
    OPENVC_KERNEL,
    call_name,
    kernel_name,
)
from summary import CAPTURED, CAUSAL, SPEED, crossover_tokens, summarize
from tables import label, steps_cell

FA3 = "FlashAttention-3 BF16"
FA3_FP8 = "FlashAttention-3 FP8"
SAGE = "SageAttention"


def timing(tflops, error=None, plans=None):
    result = {"p10_ms": 1.0, "p50_ms": 1.5, "p90_ms": 2.0, "tflops": tflops, "limits": {}}
    if error is not None:
        result |= {"rel_l2": error, "rel_l2_worst": 2 * error, "rel_l2_heads": [error, 2 * error]}
    if plans is not None:
        result["plans"] = [{"extra_steps": steps} for steps in plans]
    return result


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


def captured_step():
    return {
        "contenders": {
            OPENVC_KERNEL: timing(1200.0, 0.031, [1, 2]),
            OPENVC_CALL: timing(1150.0, 0.031),
            kernel_name("0 extra steps"): timing(1350.0, 0.067, [0, 0]),
            call_name("0 extra steps"): timing(1300.0, 0.067),
            CUDNN_BF16: timing(570.0, 0.0021),
            FA3: timing(700.0, 0.002),
            FA3_FP8: timing(930.0, 0.13),
            SAGE: timing(440.0, 0.02),
        },
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
            "gpu": "NVIDIA H200",
            "multiprocessors": 132,
            "power_limit_watts": 700.0,
            "torch": "2",
            "cudnn": 9,
        },
        "kinds": {
            OPENVC_KERNEL: "openvc",
            OPENVC_CALL: "openvc",
            kernel_name("0 extra steps"): "openvc",
            call_name("0 extra steps"): "openvc",
            CUDNN_BF16: "bf16",
            FA3: "bf16",
            FA3_FP8: "fp8",
            SAGE: "fp8",
        },
        "scopes": {CUDNN_BF16: "call", FA3: "call", FA3_FP8: "kernel", SAGE: "call"},
        "versions": {OPENVC_KERNEL: "1", FA3: "fa3-fwd 0.0.3", SAGE: "sageattention 1.0.6"},
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
                "cost_percent": {"0.01": 1.5},
                "rel_l2": {"capture": {"0.0": 0.02, "0.01": 0.015}},
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
        "ratio_fp8": 1.5556,
        "wgmma_ceiling_tflops": 1600.0,
        "share_of_ceiling": 0.875,
        "rel_l2": {"gaussian_32768": 0.05},
        "prep_ms": 1.2346,
        "prep_floor_ratio": 1.2346,
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


def page_of(record):
    return report.markdown(summarize(record), record)


def test_page(record):
    page = page_of(record)
    assert "| Open-VC kernel | 1400 | 1410 |" in page
    assert "| FlashAttention-3 BF16 (fa3-fwd 0.0.3) | 700 | 690 |" in page
    assert "2.00 times FlashAttention-3 BF16" in page
    assert "88 % of the 1600 TFLOP/s" in page
    assert "FlashAttention-4 BF16: not installed" in page
    assert "lengths: OutOfMemoryError: x" in page
    page_of({**record, "steps": {}})


def test_speed_and_error_of_captures_stand_in_one_row(record):
    record["steps"][SPEED + CAPTURED] = captured_step()
    summary = summarize(record)
    assert summary["captured"] == {
        "kernel_tflops": 1200.0,
        "call_tflops": 1150.0,
        "rel_l2": 0.031,
        "rel_l2_worst": 0.062,
        "mean_extra_steps": 1.5,
        "best_bf16": {"name": FA3, "tflops": 700.0, "rel_l2": 0.002},
        "kernel_ratio_bf16": 1.7143,
        "call_ratio_bf16": 1.6429,
        "best_fp8": {"name": FA3_FP8, "tflops": 930.0, "rel_l2": 0.13},
        "kernel_ratio_fp8": 1.2903,
        "call_ratio_fp8": 1.2366,
    }
    # The captures are not one of the shapes of random numbers.
    assert summary["kernel_tflops"] == {"73397x7": 1400.0, "73397x56": 1410.0}
    page = page_of(record)
    assert (
        "| **Open-VC, default plan** | 1: 1, 2: 1 | 1200 | 1150 | 1.71 / 1.64 | 3.10 % | 6.20 % |"
    ) in page
    assert (
        "| Open-VC, 0 extra steps | 0 in every head | 1350 | 1300 | 1.93 / 1.86 | 6.70 % | 13.40 % |"
    ) in page
    assert "| FlashAttention-3 FP8 |  | 930 | - | 1.33 | 13.00 % | 26.00 % |" in page
    assert "| FlashAttention-3 BF16 (fa3-fwd 0.0.3) |  | 700 | 700 | 1.00 | 0.20 %" in page
    assert "| SageAttention 1.0.6 |  | - | 440 | 0.63 | 2.00 %" in page
    assert page.index("captured, 75,600 x 24") < page.index("N(0,1), TFLOP/s")
    assert "no production model" in page
    assert "in another run" in page and "838 TFLOP/s" in page
    record["environment"]["gpu"] = "NVIDIA B200"
    page = page_of(record)
    assert page.startswith("# Attention on one NVIDIA B200\n")
    assert "H200" not in page and "in another run" not in page


def test_headline_is_that_of_the_captures(record):
    random_numbers = main_tables.headline(summarize(record), record)
    assert "On N(0,1), where the default plan buys no extra step" in random_numbers
    assert "Captured inputs are not measured yet" in random_numbers
    record["steps"][SPEED + CAPTURED] = captured_step()
    text = main_tables.headline(summarize(record), record)
    assert "1200 TFLOP/s on prepared inputs and at 1150 as a complete call" in text
    assert "1.71 and 1.64 times FlashAttention-3 BF16, with an error of 3.10 %" in text
    assert "FlashAttention-3 FP8 runs there at 930 TFLOP/s with 13.00 %" in text
    assert "1400" not in text


def test_error_of_random_numbers_is_of_the_first_shape(record):
    record["steps"]["speed 73397x7"]["contenders"][FA3] = timing(700.0, 0.0023)
    page = page_of(record)
    assert "| N(0,1), TFLOP/s | 73,397 x 7 | 73,397 x 56 | error, 73,397 x 7 |" in page
    assert "(fa3-fwd 0.0.3) | 700 | 690 | 0.23 % |" in page
    assert "| Open-VC kernel | 1400 | 1410 | - |" in page


def test_causal_speed_is_stated(record):
    record["steps"][CAUSAL + CAPTURED] = captured_step()
    record["steps"][CAUSAL + "32768x16"] = speeds(800.0, 400.0, 500.0, 600.0)
    summary = summarize(record)
    assert summary["causal"] == {
        CAPTURED: {"kernel_tflops": 1200.0, "call_tflops": 1150.0},
        "32768x16": {"kernel_tflops": 800.0},
    }
    page = page_of(record)
    assert (
        "| causal | captured 75,600 x 24, TFLOP/s | error | N(0,1) 32,768 x 16, TFLOP/s |" in page
    )
    assert "| Open-VC kernel | 1200 | 3.10 % | 800 | - |" in page
    assert "half of that with a causal mask" in page


def test_heads_are_listed(record):
    record["steps"][SPEED + CAPTURED] = captured_step()
    head = {"clip": "vtest.avi", "start": 640, "sigma": 0.9, "layer": 3, "head": 1}
    record["captured"] = {
        "grid": [21, 45, 80],
        "weights_sha256": "ab" * 32,
        "heads": [head, {**head, "layer": 4}],
    }
    page = page_of(record)
    assert "| vtest.avi from 640 | 3.1 | 0.9 | 1 | 3.10 % | 6.70 % |" in page
    assert "| vtest.avi from 640 | 4.1 | 0.9 | 2 | 6.20 % | 13.40 % |" in page


def test_repair_says_what_it_gains(record):
    text = main_tables.repair_sentence(record)
    gain = "1 % of the tokens: error 2.00 % to 1.50 %, time +1.5 %."
    assert f"on capture (time: N(0,1) 73397x7): {gain}" in text
    record["steps"]["repair"]["inputs"] = "capture"
    assert f"on capture: {gain}" in main_tables.repair_sentence(record)
    assert main_tables.repair_sentence({"steps": {}}) == ""


def test_short_calls_say_from_where_they_pay(record):
    def times(own, best):
        return {OPENVC_CALL: {"p50_ms": own}, FA3: {"p50_ms": best}}

    def both(own, best):
        return {"eager": times(own, best), "graph": times(own, best), "failures": {}}

    step = {"1024": both(0.3, 0.2), "2048": both(0.110, 0.1), "4096": both(0.08, 0.1)}
    record["steps"]["short 8 heads"] = step
    del record["steps"]["short 24 heads"]
    text = main_tables.short_calls(record)
    assert text.startswith("A call pays from 4,096 tokens: 80 against 100 us with 8 heads,")
    assert (
        "At 2,048 tokens its time in a CUDA graph differs from that of BF16 by +10 to +10 %" in text
    )
    step["4096"]["graph"] = times(0.2, 0.1)
    assert "BF16 attention is faster" in main_tables.short_calls(record)
    del record["steps"]["short 8 heads"]
    assert main_tables.short_calls(record) == ""


@pytest.mark.parametrize(
    "name, version, expected",
    [
        ("SageAttention", "sageattention 1.0.6", "SageAttention 1.0.6"),
        (FA3, "fa3-fwd 0.0.3", "FlashAttention-3 BF16 (fa3-fwd 0.0.3)"),
        (FA3_FP8, None, FA3_FP8),
        (OPENVC_KERNEL, "0.1.0", OPENVC_KERNEL),
    ],
)
def test_peers_are_named_with_their_version(name, version, expected, record):
    record["versions"] = {} if version is None else {name: version}
    assert label(name, record) == expected


@pytest.mark.parametrize(
    "steps, expected",
    [([], "-"), ([2, 2], "2 in every head"), ([2, 0, 1, 2], "0: 1, 1: 1, 2: 2")],
)
def test_extra_steps(steps, expected):
    assert steps_cell([{"extra_steps": n} for n in steps]) == expected


def test_blocks_go_between_their_marks(record, tmp_path, monkeypatch):
    (tmp_path / "results.json").write_text(json.dumps(record))
    readme = tmp_path / "page.md"
    blocks = [f"{report.begin_mark(n)}\nold\n{report.end_mark(n)}" for n in report.BLOCKS]
    readme.write_text("before\n" + "\nbetween\n".join(blocks) + "\nafter\n")
    monkeypatch.setattr(report, "CHARTS", {})
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path), "--insert", str(readme)])
    report.main()
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert text.count("between") == 3
    assert "Open-VC kernel" in text and "old" not in text and "V residual repair" in text
    first = text, (tmp_path / "README.md").read_text()
    report.main()
    assert (readme.read_text(), (tmp_path / "README.md").read_text()) == first


@pytest.mark.parametrize(
    "page, message",
    [
        ("no marks", "no marks; expected lines such as"),
        (report.begin_mark("results"), "no '.*end of h200 results.*' after its block"),
        (report.begin_mark("other") + report.end_mark("other"), "block 'other'; expected one of"),
    ],
)
def test_marks_that_cannot_be_filled(page, message, record, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(SystemExit, match=message):
        report.insert(path, summarize(record), record)
    assert path.read_text() == page


def test_charts_repeat(record, tmp_path):
    pytest.importorskip("matplotlib")
    record["steps"][SPEED + CAPTURED] = captured_step()
    for name, (_, write) in report.CHARTS.items():
        files = [tmp_path / f"{i}-{name}" for i in (0, 1)]
        assert all(write(record, file) for file in files)
        assert files[0].read_bytes() == files[1].read_bytes()
        assert not write({**record, "steps": {}}, files[0])


def test_the_documentation_shows_its_record(tmp_path):
    """README.md and docs/results are what report.py makes of the record that lies there."""
    root = Path(__file__).resolve().parents[2]
    folder = root / "docs" / "results" / "h200"
    data = json.loads((folder / "results.json").read_text())
    if (folder / "soak.json").exists():
        data["soak"] = json.loads((folder / "soak.json").read_text())
    summary = summarize(data)
    assert json.loads((folder / "summary.json").read_text()) == json.loads(json.dumps(summary))
    charts = {n: t for n, (t, _) in report.CHARTS.items() if (folder / n).exists()}
    assert (folder / "README.md").read_text() == report.markdown(summary, data, charts)
    copy_of_readme = tmp_path / "README.md"
    copy_of_readme.write_text((root / "README.md").read_text())
    report.insert(copy_of_readme, summary, data)
    assert copy_of_readme.read_text() == (root / "README.md").read_text()


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
