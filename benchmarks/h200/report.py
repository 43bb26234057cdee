# SPDX-License-Identifier: BSD-3-Clause
"""Markdown tables and a chart out of results.json.

    python benchmarks/h200/report.py docs/results/h200 [--insert README.md]

Writes README.md, summary.json and speed.svg beside the results.json of the folder, and tells of a
soak.json there (tests/gpu/soak.py --json). --insert also puts the table of speed and error between the marks of another Markdown file. The same record gives
the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contender_names import OPENVC_CALL, OPENVC_KERNEL
from summary import ACCURACY, HEADLINE_SHAPE, SOAK, SPEED, summarize, wgmma_ceiling

BEGIN_MARK = "<!-- h200 results: written by benchmarks/h200/report.py -->"
END_MARK = "<!-- end of h200 results -->"
SHAPE_ORDER = ("73397x7", "73397x14", "73397x56", "32768x16", "32760x40")
ACCURACY_TITLES = {
    "gaussian_32768": "N(0,1)",
    "gaussian_v_plus_1_131072": "N(0,1), V + 1, 131k keys",
}
KIND_COLOURS = {"openvc": "#1b6ca8", "bf16": "#8d99a6", "fp8": "#c98a2b"}
KIND_TITLES = {"openvc": "Open-VC Attention", "bf16": "BF16", "fp8": "8 bit"}

Row = Sequence[Any]


def markdown(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = ["# Attention on one NVIDIA H200", _circumstances(data), speed_and_error(summary, data)]
    parts += [_accuracy(data), _preparation(data), _short_calls(data), _repair(data)]
    parts += [_lengths(data), _soak(data), _sensors(data), _participants(data)]
    return "\n\n".join(part for part in parts if part) + "\n"


def speed_and_error(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The main table, and what it says."""
    speed = _steps(data, SPEED)
    shapes = _ordered(speed)
    if not shapes:
        return ""
    accuracy = _steps(data, ACCURACY)
    captures = [name for name in accuracy if name.split("_")[0] not in ("gaussian", "channel")]
    cases = [name for name in (*ACCURACY_TITLES, *captures[:1]) if name in accuracy]
    titles = [ACCURACY_TITLES.get(name, "captured model") for name in cases]
    rows = []
    for name in _participants_of(speed):
        rates = [_cell(speed[s]["contenders"].get(name, {}).get("tflops"), ".0f") for s in shapes]
        errors = [_percent(accuracy[case]["rel_l2"].get(name)) for case in cases]
        rows.append([name, *rates, *errors])
    text = table(["TFLOP/s sustained", *shapes, *(f"error, {title}" for title in titles)], rows)
    notes = [
        "Shapes are tokens x heads, head dimension 128, not causal, inputs N(0,1). TFLOP/s are "
        "4 S^2 H D over the median time of back-to-back launches; error is relative L2 against "
        "float64 on 64 sampled queries. Kernels named FP8 get inputs quantised before the clock "
        "starts, as does the Open-VC kernel; the complete call includes it."
    ]
    sentence = _comparison(summary)
    return "\n\n".join([text, *([sentence] if sentence else []), *notes])


def table(header: Row, rows: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(str(cell) for cell in header) + " |"]
    lines.append("|" + "---|" + "---:|" * (len(header) - 1))
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_chart(data: Mapping[str, Any], path: Path) -> bool:
    """A bar for every contender and shape. False if there is nothing to draw."""
    speed = _steps(data, SPEED)
    shapes, names = _ordered(speed), _participants_of(speed)
    if not shapes:
        return False
    import matplotlib

    matplotlib.use("svg")
    # Nothing of the machine or the hour may enter the file.
    matplotlib.rcParams.update(
        {"svg.hashsalt": "openvc", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 4.2))
    width = 0.85 / len(names)
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        kind = data.get("kinds", {}).get(name, "fp8")
        shade = seen[kind] = seen.get(kind, 0) + 1
        heights = [speed[s]["contenders"].get(name, {}).get("tflops", 0.0) for s in shapes]
        places = [x + (index - (len(names) - 1) / 2) * width for x in range(len(shapes))]
        axes.bar(
            places,
            heights,
            width * 0.92,
            label=name,
            color=KIND_COLOURS[kind],
            alpha=1.0 - 0.17 * (shade - 1),
        )
    ceiling = wgmma_ceiling(data["steps"])
    if ceiling:
        axes.axhline(ceiling, color="#444444", linewidth=0.8, linestyle="--")
        axes.text(len(shapes) - 0.5, ceiling, "wgmma alone", ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(shapes)), [shape.replace("x", " x ") for shape in shapes])
    axes.set_xlabel("tokens x heads")
    axes.set_ylabel("TFLOP/s, sustained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    return True


def _comparison(summary: Mapping[str, Any]) -> str:
    kernel = summary.get("kernel_tflops", {}).get(HEADLINE_SHAPE)
    if kernel is None:
        return ""
    clauses = [
        f"{summary[f'ratio_{kind}']:.2f} times {summary[f'best_{kind}']['name']}"
        for kind in ("bf16", "fp8")
        if f"ratio_{kind}" in summary
    ]
    if "share_of_ceiling" in summary:
        clauses.append(
            f"{100 * summary['share_of_ceiling']:.0f} % of the "
            f"{summary['wgmma_ceiling_tflops']:.0f} TFLOP/s that bare wgmma sustains"
        )
    return f"At {HEADLINE_SHAPE} the kernel reaches {kernel:.0f} TFLOP/s: {', '.join(clauses)}."


def _circumstances(data: Mapping[str, Any]) -> str:
    about = data.get("environment", {})
    if not about:
        return ""
    return (
        f"{about['date']}, commit {about['commit']}. {about['gpu']}, "
        f"{about['multiprocessors']} SMs, {about['power_limit_watts']:.0f} W limit, driver "
        f"{about['driver']}, torch {about['torch']}, cuDNN {about['cudnn']}. One process; every "
        "contender runs once in each of several shuffled rounds."
    )


def _accuracy(data: Mapping[str, Any]) -> str:
    accuracy = _steps(data, ACCURACY)
    if not accuracy:
        return ""
    names: list[str] = []
    for step in accuracy.values():
        names += [name for name in step["rel_l2"] if name not in names]
    rows = [
        [name, *(_percent(step["rel_l2"].get(name)) for step in accuracy.values())]
        for name in names
    ]
    return "## Error\n\n" + table(["relative L2", *accuracy], rows)


def _preparation(data: Mapping[str, Any]) -> str:
    measured = data["steps"].get("preparation")
    if not measured:
        return ""
    rows = [
        [
            shape,
            f"{step['prep_ms']:.3f}",
            f"{step['floor_ms']:.3f}",
            f"{step['floor_ratio']:.2f}",
            f"{step['percent_of_kernel']:.2f} %",
        ]
        for shape, step in measured.items()
    ]
    header = ["tokens x heads", "preparation, ms", "memory floor, ms", "ratio", "of the kernel"]
    return "## Preparation\n\n" + table(header, rows)


def _short_calls(data: Mapping[str, Any]) -> str:
    parts = []
    for name, step in _steps(data, "short ").items():
        names: list[str] = []
        for times in step.values():
            names += [peer for peer in times["eager"] if peer not in names]
        rows = []
        for peer in names:
            cells = []
            for times in step.values():
                pair = [times[way].get(peer, {}).get("p50_ms") for way in ("eager", "graph")]
                cells.append(" / ".join("-" if x is None else f"{1e3 * x:.1f}" for x in pair))
            rows.append([peer, *cells])
        parts.append(table([f"{name}; S =", *step], rows))
    if not parts:
        return ""
    title = "## Short calls\n\nMicroseconds from Python back to back / replayed as a CUDA graph."
    return "\n\n".join([title, *parts])


def _repair(data: Mapping[str, Any]) -> str:
    repair = data["steps"].get("repair")
    if not repair:
        return ""
    rows = [
        [
            f"{100 * float(budget):g} %",
            f"{cost:+.2f} %",
            *(
                f"{_percent(errors['0.0'])} to {_percent(errors[budget])}"
                for errors in repair["rel_l2"].values()
            ),
        ]
        for budget, cost in repair["cost_percent"].items()
    ]
    header = ["tokens repaired", f"time, {repair['shape']}"]
    return "## V residual repair\n\n" + table([*header, *repair["rel_l2"]], rows)


def _lengths(data: Mapping[str, Any]) -> str:
    lengths = data["steps"].get("lengths")
    if not lengths:
        return ""
    rows = [["TFLOP/s", *(f"{timing['tflops']:.0f}" for timing in lengths.values())]]
    return "## Neighbouring lengths, 16 heads\n\n" + table(["S", *lengths], rows)


def _soak(data: Mapping[str, Any]) -> str:
    soak = data.get(SOAK)
    if not soak:
        return ""
    text = (
        f"{soak['soak_cases']} random calls in {soak['seconds']:.0f} seconds (seed {soak['seed']}), "
        f"{soak['soak_failures']} failures. Rows, heads and log-sum-exp are held to the exact "
        "result (`tests/gpu/soak.py`)."
    )
    rows = [[kind, count] for kind, count in soak["kinds"].items()]
    return "## Soak\n\n" + text + "\n\n" + table(["calls with", "number"], rows)


def _sensors(data: Mapping[str, Any]) -> str:
    speed = _steps(data, SPEED)
    rows = []
    for shape in _ordered(speed):
        for name, timing in speed[shape]["contenders"].items():
            rows.append(
                [
                    f"{shape}, {name}",
                    *(f"{timing[key]:.3f}" for key in ("p10_ms", "p50_ms", "p90_ms")),
                    _cell(timing.get("sm_clock_mhz"), ".0f"),
                    _cell(timing.get("power_watts"), ".0f"),
                    _cell(timing.get("joules_per_launch"), ".2f"),
                    ", ".join(timing.get("limits", {})) or "-",
                ]
            )
    if not rows:
        return ""
    header = ["", "p10 ms", "p50 ms", "p90 ms", "SM MHz", "W", "J", "clock limited by"]
    return "## Clocks and power\n\n" + table(header, rows)


def _participants(data: Mapping[str, Any]) -> str:
    lines = [f"- {name}: {version}" for name, version in data.get("versions", {}).items()]
    lines += [f"- {name}: not installed" for name in data.get("absent", {})]
    lines += [f"- {name}: left out, {reason}" for name, reason in data["excluded"].items()]
    failures = {
        f"- {name}, {step}: failed: {reason.splitlines()[-1]}"
        for step, measured in data["steps"].items()
        if isinstance(measured, dict)
        for name, reason in measured.get("failures", {}).items()
    }
    failures |= {f"- {x['step']}: {x['reason'].splitlines()[-1]}" for x in data["failures"]}
    return "\n".join(["## Who took part", "", *lines, *sorted(failures)])


def _steps(data: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): step
        for name, step in data["steps"].items()
        if name.startswith(prefix)
    }


def _ordered(speed: Mapping[str, Any]) -> list[str]:
    known = [shape for shape in SHAPE_ORDER if shape in speed]
    return known + [shape for shape in speed if shape not in known]


def _participants_of(speed: Mapping[str, Any]) -> list[str]:
    """This library's kernel and call, then the others, each group by speed at the first shape."""
    shapes = _ordered(speed)
    if not shapes:
        return []
    best = {
        name: max(speed[s]["contenders"].get(name, {}).get("tflops", 0.0) for s in shapes[:1])
        for s in shapes
        for name in speed[s]["contenders"]
    }
    own = [name for name in (OPENVC_KERNEL, OPENVC_CALL) if name in best]
    others = sorted((name for name in best if name not in own), key=lambda n: (-best[n], n))
    return own + others


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _insert(text: str, path: Path) -> None:
    page = path.read_text()
    begin, end = page.find(BEGIN_MARK), page.find(END_MARK)
    if not 0 <= begin < end:
        raise SystemExit(f"report.py: {path} lacks the lines '{BEGIN_MARK}' and '{END_MARK}'")
    path.write_text(page[: begin + len(BEGIN_MARK)] + f"\n\n{text}\n\n" + page[end:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with results.json")
    parser.add_argument("--insert", type=Path, help="Markdown file that gets the main table")
    arguments = parser.parse_args()
    data = json.loads((arguments.folder / "results.json").read_text())
    soak = arguments.folder / "soak.json"
    if soak.exists():
        data[SOAK] = json.loads(soak.read_text())
    summary = summarize(data)
    (arguments.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    page = markdown(summary, data)
    if write_chart(data, arguments.folder / "speed.svg"):
        page = page.replace("\n\n", "\n\n![sustained speed](speed.svg)\n\n", 1)
    (arguments.folder / "README.md").write_text(page)
    if arguments.insert is not None:
        _insert(speed_and_error(summary, data), arguments.insert)
    return 0


if __name__ == "__main__":
    sys.exit(main())
