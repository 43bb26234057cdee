# SPDX-License-Identifier: BSD-3-Clause
"""Markdown tables, and how names and numbers are written in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contender_names import DEFAULT_PLAN, PLANS, call_name, kernel_name

Row = Sequence[Any]


def table(header: Row, rows: Iterable[Row]) -> str:
    lines = ["| " + " | ".join(str(cell) for cell in header) + " |"]
    lines.append("|" + "---|" + "---:|" * (len(header) - 1))
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def shape_title(shape: str) -> str:
    """ "75600x24" as "75,600 x 24"."""
    tokens, heads = shape.split("x")
    return f"{int(tokens):,} x {heads}"


def label(name: str, data: Mapping[str, Any]) -> str:
    """A contender with its version; this library's is that of the whole record."""
    version = data.get("versions", {}).get(name)
    if version is None or data.get("kinds", {}).get(name) == "openvc":
        return name
    package, _, number = version.partition(" ")
    return f"{name} {number}" if package == name.lower() else f"{name} ({version})"


def steps_cell(plans: Sequence[Mapping[str, Any]]) -> str:
    """How many heads got how many extra steps: "0: 5, 1: 9, 2: 10"."""
    counts = Counter(plan["extra_steps"] for plan in plans)
    if not counts:
        return "-"
    if len(counts) == 1:
        return f"{next(iter(counts))} in every head"
    return ", ".join(f"{steps}: {heads}" for steps, heads in sorted(counts.items()))


def plan_rows(contenders: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Title, kernel and complete call of every plan of this library that was measured."""
    rows = []
    for plan in (DEFAULT_PLAN, *PLANS):
        pair = contenders.get(kernel_name(plan)), contenders.get(call_name(plan))
        if any(pair):
            title = f"Open-VC, {plan}"
            rows.append((f"**{title}**" if plan == DEFAULT_PLAN else title, *pair))
    return rows


def peers(contenders: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """The other libraries, the fastest first."""
    kinds = data.get("kinds", {})
    names = [name for name in contenders if kinds.get(name) != "openvc"]
    return sorted(names, key=lambda name: (-contenders[name]["tflops"], name))


def steps_of(data: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): step
        for name, step in data["steps"].items()
        if name.startswith(prefix)
    }
