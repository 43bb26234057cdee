# SPDX-License-Identifier: BSD-3-Clause
"""The parts of docs/results/h200/README.md below the main tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contender_names import OPENVC_KERNEL, kernel_name
from main_tables import ordered
from summary import ACCURACY, CAPTURED, CAUSAL, REPAIR, SOAK, SPEED
from tables import cell, label, peers, percent, steps_of, table


def circumstances(data: Mapping[str, Any]) -> str:
    about = data.get("environment", {})
    if not about:
        return ""
    return (
        f"{about['date']}, commit {about['commit']}. {about['gpu']}, "
        f"{about['multiprocessors']} SMs, {about['power_limit_watts']:.0f} W limit, driver "
        f"{about['driver']}, torch {about['torch']}, cuDNN {about['cudnn']}. One process a "
        "table; every contender runs once in each of several shuffled rounds."
    )


def heads(data: Mapping[str, Any]) -> str:
    """Every captured head: where it comes from, what its plan is and what it loses."""
    step, about = steps_of(data, SPEED).get(CAPTURED), data.get("captured")
    if step is None or about is None:
        return ""
    contenders = step["contenders"]
    no_steps = kernel_name("0 extra steps")
    own = [name for name in (OPENVC_KERNEL, no_steps) if name in contenders]
    names = own + peers(contenders, data)
    plans = contenders.get(OPENVC_KERNEL, {}).get("plans") or [{}] * len(about["heads"])
    rows = []
    for index, (source, plan) in enumerate(zip(about["heads"], plans, strict=True)):
        rows.append(
            [
                f"{source['clip']} from {source['start']}",
                f"{source['layer']}.{source['head']}",
                source["sigma"],
                plan.get("extra_steps", "-"),
                *(percent(contenders[name]["rel_l2_heads"][index]) for name in names),
            ]
        )
    header = ["clip, first frame", "layer.head", "noise", "extra steps"]
    return (
        "## The captured heads\n\n"
        + table([*header, *(label(name, data) for name in names)], rows)
        + f"\n\nA grid of {' x '.join(map(str, about['grid']))} tokens; SHA-256 of the weights "
        f"{about['weights_sha256'][:16]}..., all in results.json."
    )


def accuracy(data: Mapping[str, Any]) -> str:
    found = steps_of(data, ACCURACY)
    if not found:
        return ""
    names: list[str] = []
    for step in found.values():
        names += [name for name in step["rel_l2"] if name not in names]
    rows = [
        [label(name, data), *(percent(step["rel_l2"].get(name)) for step in found.values())]
        for name in names
    ]
    text = "Inputs that strain single rules; they are not timed."
    return f"## Error on other inputs\n\n{text}\n\n" + table(["relative L2", *found], rows)


def preparation(data: Mapping[str, Any]) -> str:
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


def short_calls(data: Mapping[str, Any]) -> str:
    parts = []
    for name, step in steps_of(data, "short ").items():
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


def repair(data: Mapping[str, Any]) -> str:
    measured = data["steps"].get(REPAIR)
    if not measured:
        return ""
    rows = []
    for budget, cost in measured["cost_percent"].items():
        errors = [
            f"{percent(found.get('0.0', found.get('0')))} to {percent(found[budget])}"
            for found in measured["rel_l2"].values()
        ]
        rows.append([f"{100 * float(budget):g} %", f"{cost:+.2f} %", *errors])
    header = ["tokens repaired", f"time, {measured.get('inputs', 'N(0,1)')}"]
    return "## V residual repair\n\n" + table([*header, *measured["rel_l2"]], rows)


def lengths(data: Mapping[str, Any]) -> str:
    lengths = data["steps"].get("lengths")
    if not lengths:
        return ""
    rows = [["TFLOP/s", *(f"{timing['tflops']:.0f}" for timing in lengths.values())]]
    return "## Neighbouring lengths, 16 heads\n\n" + table(["S", *lengths], rows)


def soak(data: Mapping[str, Any]) -> str:
    soak = data.get(SOAK)
    if not soak:
        return ""
    text = (
        f"{soak['soak_cases']} random calls in {soak['seconds']:.0f} seconds "
        f"(seed {soak['seed']}), {soak['soak_failures']} failures. Rows, heads "
        "and log-sum-exp are held to the exact result (`tests/gpu/soak.py`)."
    )
    rows = [[kind, count] for kind, count in soak["kinds"].items()]
    return "## Soak\n\n" + text + "\n\n" + table(["calls with", "number"], rows)


def sensors(data: Mapping[str, Any]) -> str:
    speed = steps_of(data, SPEED)
    cases = [(shape, speed[shape]) for shape in ordered(speed)]
    cases += [(CAUSAL + shape, step) for shape, step in steps_of(data, CAUSAL).items()]
    rows = []
    for case, step in cases:
        for name, timing in step["contenders"].items():
            rows.append(
                [
                    f"{case}, {name}",
                    *(f"{timing[key]:.3f}" for key in ("p10_ms", "p50_ms", "p90_ms")),
                    cell(timing.get("sm_clock_mhz")),
                    cell(timing.get("power_watts")),
                    cell(timing.get("joules_per_launch"), ".2f"),
                    ", ".join(timing.get("limits", {})) or "-",
                ]
            )
    if not rows:
        return ""
    header = ["", "p10 ms", "p50 ms", "p90 ms", "SM MHz", "W", "J", "clock limited by"]
    return "## Clocks and power\n\n" + table(header, rows)


def participants(data: Mapping[str, Any]) -> str:
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
