# SPDX-License-Identifier: BSD-3-Clause
"""Charts out of results.json. The same record gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from main_tables import ordered, participants
from summary import CAPTURED, SPEED, wgmma_ceiling
from tables import label, peers, plan_rows, steps_of

KIND_COLOURS = {"openvc": "#1b6ca8", "bf16": "#8d99a6", "fp8": "#c98a2b"}


def write_speed_chart(data: Mapping[str, Any], path: Path) -> bool:
    """A bar for every contender and shape. False if there is nothing to draw."""
    speed = {shape: step for shape, step in steps_of(data, SPEED).items() if shape != CAPTURED}
    if not speed:
        return False
    shapes, names = ordered(speed), participants(speed, data)
    pyplot = _pyplot()
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
            label=label(name, data),
            color=KIND_COLOURS[kind],
            alpha=max(0.2, 1.0 - 0.17 * (shade - 1)),
        )
    ceiling = wgmma_ceiling(data["steps"])
    if ceiling:
        axes.axhline(ceiling, color="#444444", linewidth=0.8, linestyle="--")
        axes.text(len(shapes) - 0.5, ceiling, "wgmma alone", ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(shapes)), [shape.replace("x", " x ") for shape in shapes])
    axes.set_xlabel("tokens x heads, N(0,1)")
    axes.set_ylabel("TFLOP/s, sustained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    _save(pyplot, figure, path)
    return True


def write_error_chart(data: Mapping[str, Any], path: Path) -> bool:
    """Error over speed on captured inputs, a point for every plan and peer."""
    step = steps_of(data, SPEED).get(CAPTURED)
    if step is None:
        return False
    contenders = step["contenders"]
    points = [
        (title.replace("*", ""), "openvc", kernel)
        for title, kernel, _ in plan_rows(contenders)
        if kernel
    ]
    points += [
        (label(name, data), data["kinds"][name], contenders[name])
        for name in peers(contenders, data)
    ]
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for title, kind, timing in points:
        place = timing["tflops"], 100 * timing["rel_l2"]
        axes.plot(*place, "o", color=KIND_COLOURS[kind])
        axes.annotate(
            title, place, xytext=(5, 3), textcoords="offset points", fontsize=7, color="#333333"
        )
    axes.set_yscale("log")
    axes.set_xlim(0, 1.25 * max(timing["tflops"] for _, _, timing in points))
    axes.set_xlabel("TFLOP/s, sustained, kernel")
    axes.set_ylabel("relative L2 error, %")
    axes.set_title(CAPTURED.replace("x", " x ") + ": right and low is good", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    _save(pyplot, figure, path)
    return True


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    # Nothing of the machine or the hour may enter the file.
    matplotlib.rcParams.update(
        {"svg.hashsalt": "openvc", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    from matplotlib import pyplot

    return pyplot


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
