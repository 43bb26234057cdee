# SPDX-License-Identifier: BSD-3-Clause
"""The table of Switch.report(), and the order of a model's blocks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a name


class Record(NamedTuple):
    """Calls of one layer that were alike."""

    layer: str
    """Name of the module; empty where a compiler does not tell it."""
    queries: int
    keys: int
    heads: int
    reason: str
    """Why they were not served in FP8; empty if they were."""
    count: int
    traced: bool = False
    """A compiler saw the call: it counts once for each compilation."""
    order: tuple[int, int, int, str] = (0, 0, 0, "")

    @property
    def fp8(self) -> bool:
        return not self.reason


def block_positions(names: Sequence[str]) -> tuple[list[int | None], int]:
    """The index of each module's block, and the number of blocks.

    A block is a member of a list of modules: "blocks.7" of "blocks.7.attn1". Lists nearest to the
    model count, in order of appearance; lists inside other parts, as those of text refiners, do not.
    """
    blocks = [_block(name) for name in names]
    depth = min((block.count(".") for block in blocks if block), default=0)
    counted = [block if block and block.count(".") == depth else None for block in blocks]
    order = {block: i for i, block in enumerate(dict.fromkeys(filter(None, counted)))}
    return [None if block is None else order[block] for block in counted], len(order)


def _block(name: str) -> str | None:
    parts = name.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: i + 1])
    return None


def table(records: Sequence[Record]) -> str:
    """Records as text; neighbours that differ in the number of their block alone share a row."""
    if not records:
        return "no attention call yet"
    rows = [("layer", "queries x keys x heads", "FP8", "elsewhere", "reason")]
    for _, group in itertools.groupby(_by_pattern(records), key=_likeness):
        rows.append(_row(list(group)))
    fp8 = sum(record.count for record in records if record.fp8)
    others = sum(record.count for record in records if not record.fp8)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    numbers = (2, 3)
    lines = [
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.append(f"{fp8} calls in FP8, {others} elsewhere")
    if any(record.traced for record in records):
        lines.append("compiled: seen when the function was compiled, not counted when it runs")
    return "\n".join(lines)


def _pattern(record: Record) -> str:
    return _NUMBER.sub("*", record.layer, count=1)


def _by_pattern(records: Sequence[Record]) -> list[Record]:
    """Records of one kind side by side, kinds in order of their first."""
    kinds: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        kinds.setdefault(_likeness(record), []).append(record)
    return list(itertools.chain.from_iterable(kinds.values()))


def _likeness(record: Record) -> tuple[object, ...]:
    return (_pattern(record), record.queries, record.keys, record.heads, record.reason)


def _row(group: Sequence[Record]) -> tuple[str, ...]:
    first = group[0]
    names = dict.fromkeys(record.layer for record in group)
    name = first.layer or ("(compiled)" if first.traced else "(unnamed)")
    if len(names) > 1:
        numbers = [int(_NUMBER.search(x).group()) for x in names]  # type: ignore[union-attr]
        name = _NUMBER.sub(_ranges(numbers), first.layer, count=1)
    count = str(sum(record.count for record in group))
    shape = f"{first.queries} x {first.keys} x {first.heads}"
    reason = first.reason + (" (compiled)" if first.traced and first.layer else "")
    return name, shape, count if first.fp8 else "0", "0" if first.fp8 else count, reason


def _ranges(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] as "0-2,5"."""
    parts = []
    for _, run in itertools.groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        parts.append(f"{found[0]}-{found[-1]}" if len(found) > 1 else str(found[0]))
    return ",".join(parts)
