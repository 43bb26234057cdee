# SPDX-License-Identifier: BSD-3-Clause
"""The few figures that the documentation quotes, out of the record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contender_names import OPENVC_CALL, OPENVC_KERNEL, SDPA_NAMES

HEADLINE_SHAPE = "73397x7"
PREPARATION_SHAPE = "73397x56"
REPAIR_BUDGET = "0.01"
SPEED = "speed "
CAUSAL = "causal "
ACCURACY = "accuracy "
REPAIR = "repair"
CAPTURED = "captured 75600x24"
SOAK = "soak"
SOAK_FIGURES = ("soak_cases", "soak_failures")


def summarize(data: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json. A figure that was not measured is left out."""
    steps = data["steps"]
    environment = data.get("environment", {})
    everything = {
        name.removeprefix(SPEED): step for name, step in steps.items() if name.startswith(SPEED)
    }
    # What is said of N(0,1) is not said of captures.
    speed = {shape: step for shape, step in everything.items() if shape != CAPTURED}
    kernel = _rates(speed, OPENVC_KERNEL)
    ceiling = wgmma_ceiling(steps)
    result: dict[str, Any] = {
        "captured": _captured(data, everything.get(CAPTURED)),
        "causal": {
            name.removeprefix(CAUSAL): _both_rates(step)
            for name, step in steps.items()
            if name.startswith(CAUSAL)
        },
        "date": environment.get("date"),
        "commit": environment.get("commit"),
        "driver": environment.get("driver"),
        "kernel_tflops": kernel,
        "best_bf16": best_peer(data, speed, "bf16"),
        "best_fp8": best_peer(data, speed, "fp8"),
        "wgmma_ceiling_tflops": ceiling,
        "rel_l2": {
            name.removeprefix(ACCURACY): step["rel_l2"].get(OPENVC_KERNEL)
            for name, step in steps.items()
            if name.startswith(ACCURACY)
        },
    }
    for kind in ("bf16", "fp8"):
        peer = result[f"best_{kind}"]
        if peer and HEADLINE_SHAPE in peer and HEADLINE_SHAPE in kernel:
            result[f"ratio_{kind}"] = round(kernel[HEADLINE_SHAPE] / peer[HEADLINE_SHAPE], 4)
    if ceiling and HEADLINE_SHAPE in kernel:
        result["share_of_ceiling"] = round(kernel[HEADLINE_SHAPE] / ceiling, 4)
    result |= _preparation(steps, speed)
    for mode, key in (("eager", "crossover_S"), ("graph", "crossover_graph_S")):
        crossover = crossover_tokens(steps, mode)
        if crossover is not None:
            result[key] = crossover
    result |= _repair(steps)
    result |= {key: data[SOAK][key] for key in SOAK_FIGURES if SOAK in data}
    return {name: value for name, value in result.items() if value not in (None, {})}


def wgmma_ceiling(steps: Mapping[str, Any]) -> float | None:
    """The best of the instruction's forms."""
    if "ceiling" not in steps:
        return None
    return max(product["sustained_tflops"] for product in steps["ceiling"]["products"])


def best_peer(data: Mapping[str, Any], speed: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The peer that is fastest at the headline shape, or at the first shape that was measured."""
    kinds = data.get("kinds", {})
    names = [name for name, of in kinds.items() if of == kind]
    candidates = {name: rates for name in names if (rates := _rates(speed, name))}
    if not candidates:
        return {}
    shapes = [HEADLINE_SHAPE, *speed]
    shape = next(s for s in shapes if any(s in rates for rates in candidates.values()))
    best = max(candidates, key=lambda name: candidates[name].get(shape, 0.0))
    return {"name": best, **candidates[best]}


def crossover_tokens(steps: Mapping[str, Any], mode: str = "eager") -> int | None:
    """The length from which on a complete call beats the faster of torch's SDPA backends at every
    longer length and every number of heads: calls from Python, or replays of a graph."""
    worst: int | None = None
    for name, step in steps.items():
        if not name.startswith("short "):
            continue
        first = None
        for tokens in sorted((int(n) for n in step), reverse=True):
            times = step[str(tokens)][mode]
            peers = [times[peer]["p50_ms"] for peer in SDPA_NAMES if peer in times]
            if OPENVC_CALL not in times or not peers:
                break
            if times[OPENVC_CALL]["p50_ms"] > min(peers):
                break
            first = tokens
        if first is None:
            return None
        worst = max(worst or 0, first)
    return worst


def _rates(speed: Mapping[str, Any], contender: str) -> dict[str, float]:
    return {
        shape: step["contenders"][contender]["tflops"]
        for shape, step in speed.items()
        if contender in step["contenders"]
    }


def _preparation(steps: Mapping[str, Any], speed: Mapping[str, Any]) -> dict[str, Any]:
    measured = steps.get("preparation", {}).get(PREPARATION_SHAPE)
    if measured is None:
        return {}
    overhead = speed.get(PREPARATION_SHAPE, {}).get("call_overhead_percent")
    return {
        "prep_ms": round(measured["prep_ms"], 4),
        "prep_floor_ratio": round(measured["floor_ratio"], 4),
        "call_overhead_percent": overhead,
    }


def _repair(steps: Mapping[str, Any]) -> dict[str, Any]:
    repair = steps.get(REPAIR)
    if repair is None or REPAIR_BUDGET not in repair["cost_percent"]:
        return {}
    gains = [
        100 * (1 - errors[REPAIR_BUDGET] / errors.get("0.0", errors.get("0")))
        for errors in repair["rel_l2"].values()
    ]
    result = {"repair_cost_percent": repair["cost_percent"][REPAIR_BUDGET]}
    if gains:
        result["repair_error_reduction_percent"] = round(sum(gains) / len(gains), 2)
    return result


def _captured(data: Mapping[str, Any], step: Mapping[str, Any] | None) -> dict[str, Any]:
    """Speed, error and plan of the default, on the same tensors, and the best peers there."""
    if step is None or OPENVC_KERNEL not in step["contenders"]:
        return {}
    own = step["contenders"][OPENVC_KERNEL]
    result: dict[str, Any] = _both_rates(step)
    result["rel_l2"] = own["rel_l2"]
    result["rel_l2_worst"] = own["rel_l2_worst"]
    plans = own.get("plans", [])
    if plans:
        result["mean_extra_steps"] = round(
            sum(plan["extra_steps"] for plan in plans) / len(plans), 3
        )
    for kind in ("bf16", "fp8"):
        peer = best_peer(data, {CAPTURED: step}, kind)
        if peer:
            found = step["contenders"][peer["name"]]
            result[f"best_{kind}"] = {
                "name": peer["name"],
                "tflops": found["tflops"],
                "rel_l2": found["rel_l2"],
            }
            for what in ("kernel", "call"):
                if f"{what}_tflops" in result:
                    ratio = result[f"{what}_tflops"] / found["tflops"]
                    result[f"{what}_ratio_{kind}"] = round(ratio, 4)
    return result


def _both_rates(step: Mapping[str, Any]) -> dict[str, float]:
    names = {"kernel_tflops": OPENVC_KERNEL, "call_tflops": OPENVC_CALL}
    return {
        key: step["contenders"][name]["tflops"]
        for key, name in names.items()
        if name in step["contenders"]
    }
