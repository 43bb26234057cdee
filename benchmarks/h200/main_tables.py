# SPDX-License-Identifier: BSD-3-Clause
"""The tables and sentences that README.md shows: speed and error of one row are of one input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contender_names import OPENVC_CALL, OPENVC_KERNEL, kernel_name
from summary import CAPTURED, CAUSAL, HEADLINE_SHAPE, REPAIR, SPEED
from tables import (
    cell,
    label,
    peers,
    percent,
    plan_rows,
    shape_title,
    steps_cell,
    steps_of,
    table,
)

SHAPE_ORDER = (HEADLINE_SHAPE, "73397x14", "73397x56", "32768x16", "32760x40")
BF16 = "bf16"
WAYS = ("eager", "graph")

WHAT_IS_CAPTURED = (
    "The captured inputs are Q, K and V of *minidit*, a video transformer of 6.9 million "
    "parameters that was trained for minutes on three short clips: no production model, but with "
    "the sharp, diffuse and outlier heads that random numbers lack. 24 heads: one of each of 8 "
    "layers from each of three clips, at three noise levels."
)
SAGE_2_ELSEWHERE = (
    "SageAttention 2's Hopper kernel is not in the package registry and takes no part here; in "
    "another run, on the same kind of card, it ran at 838 TFLOP/s, its complete call at 815."
)
HOW_MEASURED = (
    "TFLOP/s are 4 S^2 H D over the median time of back-to-back launches, half of that with a "
    "causal mask. Error is relative L2 against float64 on sampled queries of the very tensors that "
    "are timed. Kernels named FP8 get inputs quantised before the clock starts, as does this "
    "library's kernel; its complete call and SageAttention include it, and BF16 needs none."
)


def gpu_name(data: Mapping[str, Any]) -> str:
    """The GPU that was measured."""
    return str(data.get("environment", {}).get("gpu", "GPU"))


def _how_measured(data: Mapping[str, Any]) -> str:
    about = [HOW_MEASURED]
    if gpu_name(data) == "NVIDIA H200":
        about.append(SAGE_2_ELSEWHERE)
    return " ".join(about)


def headline(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What the first lines of README.md may claim."""
    found = summary.get("captured")
    if not found:
        return _headline_of_random_numbers(summary, data)
    text = (
        f"On one {gpu_name(data)}, on inputs captured from a small video transformer "
        f"({shape_title(CAPTURED.split()[1])} tokens x heads), the default plan runs at "
        f"{found['kernel_tflops']:.0f} TFLOP/s on prepared inputs"
    )
    if "call_tflops" in found:
        text += f" and at {found['call_tflops']:.0f} as a complete call"
    bf16, fp8 = found.get("best_bf16"), found.get("best_fp8")
    if bf16:
        ratios = [
            f"{found[f'{what}_ratio_bf16']:.2f}"
            for what in ("kernel", "call")
            if f"{what}_ratio_bf16" in found
        ]
        text += f", {' and '.join(ratios)} times {bf16['name']}"
    worst = percent(found["rel_l2_worst"])
    text += f", with an error of {percent(found['rel_l2'])} (worst head {worst})."
    if fp8:
        text += (
            f" {fp8['name']} runs there at {fp8['tflops']:.0f} TFLOP/s with "
            f"{percent(fp8['rel_l2'])}."
        )
    return text


def main_results(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Captured inputs first, then N(0,1), then causal."""
    parts = [captured_table(data), gaussian_table(summary, data), causal_table(data)]
    parts = [part for part in parts if part]
    return "\n\n".join([*parts, _how_measured(data)]) if parts else ""


def captured_table(data: Mapping[str, Any]) -> str:
    step = steps_of(data, SPEED).get(CAPTURED)
    if step is None:
        return ""
    contenders = step["contenders"]
    best = max(
        (name for name in peers(contenders, data) if data["kinds"][name] == BF16),
        key=lambda name: contenders[name]["tflops"],
        default=None,
    )

    def times(*rates: float | None) -> str:
        if best is None:
            return "-"
        reference = contenders[best]["tflops"]
        return " / ".join(cell(x / reference, ".2f") for x in rates if x is not None)

    rows = []
    for title, kernel, call in plan_rows(contenders):
        of = kernel or call
        rates = [x and x["tflops"] for x in (kernel, call)]
        errors = percent(of["rel_l2"]), percent(of["rel_l2_worst"])
        steps = steps_cell(of.get("plans", []))
        rows.append([title, steps, *map(cell, rates), times(*rates), *errors])
    for name in peers(contenders, data):
        of = contenders[name]
        is_kernel = data["scopes"][name] == "kernel"
        rates = (
            of["tflops"] if is_kernel or data["kinds"][name] == BF16 else None,
            (None if is_kernel else of["tflops"]),
        )
        errors = percent(of["rel_l2"]), percent(of["rel_l2_worst"])
        rows.append([label(name, data), "", *map(cell, rates), times(of["tflops"]), *errors])
    header = [
        f"captured, {shape_title(CAPTURED.split()[1])} tokens x heads",
        "extra steps: heads",
        "kernel, TFLOP/s",
        "complete call",
        f"times {best or 'BF16'}",
        "error, RMS of the heads",
        "worst head",
    ]
    return table(header, rows) + "\n\n" + WHAT_IS_CAPTURED


def gaussian_table(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    speed = {shape: step for shape, step in steps_of(data, SPEED).items() if shape != CAPTURED}
    shapes = ordered(speed)
    if not shapes:
        return ""
    first = speed[shapes[0]]["contenders"]
    with_error = any("rel_l2" in timing for timing in first.values())
    rows = []
    for name in participants(speed, data):
        rates = [cell(speed[s]["contenders"].get(name, {}).get("tflops")) for s in shapes]
        error = [percent(first.get(name, {}).get("rel_l2"))] if with_error else []
        rows.append([label(name, data), *rates, *error])
    header = ["N(0,1), TFLOP/s", *map(shape_title, shapes)]
    header += [f"error, {shape_title(shapes[0])}"] if with_error else []
    text = table(header, rows)
    sentence = comparison(summary)
    return f"{text}\n\n{sentence}" if sentence else text


def causal_table(data: Mapping[str, Any]) -> str:
    causal = steps_of(data, CAUSAL)
    if not causal:
        return ""
    header, rows = ["causal"], []
    for case in causal:
        title = case if case.startswith("captured") else f"N(0,1) {shape_title(case)}"
        title = title.replace(CAPTURED, f"captured {shape_title(CAPTURED.split()[1])}")
        header += [f"{title}, TFLOP/s", "error"]
    for name in participants(causal, data):
        found = [step["contenders"].get(name, {}) for step in causal.values()]
        cells = [text for x in found for text in (cell(x.get("tflops")), percent(x.get("rel_l2")))]
        rows.append([label(name, data), *cells])
    return table(header, rows)


def comparison(summary: Mapping[str, Any]) -> str:
    """The headline shape of random numbers, where the default plan buys no extra step."""
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
    return (
        f"On N(0,1), where the default plan buys no extra step, the kernel reaches {kernel:.0f} "
        f"TFLOP/s at {shape_title(HEADLINE_SHAPE)}: {', '.join(clauses)}."
    )


def short_calls(data: Mapping[str, Any]) -> str:
    """From which length on a call pays, and what it costs there and one length before."""
    steps = steps_of(data, "short ")
    if not steps:
        return ""
    lengths = sorted({int(n) for step in steps.values() for n in step})
    pays = None
    for tokens in reversed(lengths):
        if any(_gain(step[str(tokens)], way, data) < 1 for step in steps.values() for way in WAYS):
            break
        pays = tokens
    if pays is None:
        return f"Up to {lengths[-1]:,} tokens BF16 attention is faster in some measured cases."
    costs = []
    for heads, step in steps.items():
        own, best = _times(step[str(pays)], "eager", data)
        count = heads.removesuffix(" heads")
        costs.append(f"{1e3 * own:.0f} against {1e3 * best:.0f} us with {count} heads")
    text = (
        f"A call pays from {pays:,} tokens: {', '.join(costs)}, beside the fastest BF16 attention."
    )
    before = [n for n in lengths if n < pays]
    if before:
        losses = [
            round(100 * (1 / _gain(step[str(before[-1])], "graph", data) - 1))
            for step in steps.values()
        ]
        text += (
            f" At {before[-1]:,} tokens its time in a CUDA graph differs from that of BF16 by "
            f"{min(losses):+d} to {max(losses):+d} %, more from Python with few heads; below, "
            "BF16 wins clearly."
        )
    return text


def repair_sentence(data: Mapping[str, Any]) -> str:
    repair = data["steps"].get(REPAIR)
    if not repair:
        return ""
    source, errors = next(iter(repair["rel_l2"].items()))
    before = errors.get("0.0", errors.get("0"))
    gains = [
        f"{100 * float(budget):g} % of the tokens: error {percent(before)} to "
        f"{percent(errors[budget])}, time {cost:+.1f} %"
        for budget, cost in repair["cost_percent"].items()
    ]
    where = "the captured inputs" if source == CAPTURED else source
    timed = repair.get("inputs", f"N(0,1) {repair['shape']}")
    if timed != source:
        where += f" (time: {timed})"
    return f"V residual repair (`prepare_v_repair`) on {where}: {'; '.join(gains)}."


def ordered(speed: Mapping[str, Any]) -> list[str]:
    known = [shape for shape in SHAPE_ORDER if shape in speed]
    return known + [shape for shape in speed if shape not in known]


def participants(steps: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """This library's kernel and call, its other plans, then the peers by speed."""
    found: dict[str, Any] = {}
    for case in ordered(steps):
        found = steps[case]["contenders"] | found
    own = [OPENVC_KERNEL, OPENVC_CALL, *(name for name in found if _is_own(name, data))]
    return [name for name in dict.fromkeys(own) if name in found] + peers(found, data)


def _is_own(name: str, data: Mapping[str, Any]) -> bool:
    return data.get("kinds", {}).get(name) == "openvc"


def _times(step: Mapping[str, Any], way: str, data: Mapping[str, Any]) -> tuple[float, float]:
    """This library's call and the fastest BF16 attention, ms."""
    times = step[way]
    kinds = data.get("kinds", {})
    rivals = [timing["p50_ms"] for name, timing in times.items() if kinds.get(name) == BF16]
    own = times.get(OPENVC_CALL)
    if own is None or not rivals:
        return 1.0, 0.0
    return own["p50_ms"], min(rivals)


def _gain(step: Mapping[str, Any], way: str, data: Mapping[str, Any]) -> float:
    own, best = _times(step, way, data)
    return best / own


def _headline_of_random_numbers(summary: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    text = comparison(summary)
    if not text:
        return "Speed is not measured yet."
    plan = "2 extra steps"
    timing = steps_of(data, SPEED)[HEADLINE_SHAPE]["contenders"].get(kernel_name(plan))
    if timing:
        text += f" With {plan} in every head it runs at {timing['tflops']:.0f} TFLOP/s."
    return f"{text} Captured inputs are not measured yet."
