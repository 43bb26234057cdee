# SPDX-License-Identifier: BSD-3-Clause
"""Charts as inline SVG. Texts that come from outside are escaped here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

COLOURS = 7
"""Classes c0 to c6 of the style sheet; more series repeat them with dashes."""
_DASHES = ("", "6 4", "2 3", "9 3 2 3")
_CHARACTER = 8.0  # pixels of a character of 13 px, generously
_LABEL_CHARACTERS = 26


class Series(NamedTuple):
    name: str
    values: Sequence[float]


class _Frame(NamedTuple):
    """The plotting area."""

    left: float
    top: float
    width: float
    height: float


def colour(index: int) -> str:
    return f"c{index % COLOURS}"


def dash(index: int) -> str:
    pattern = _DASHES[index // COLOURS % len(_DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def legend(names: Sequence[str]) -> str:
    """Which colour is whose; the keys are drawn as the lines are."""
    items = (
        f'<li><svg class="key" viewBox="0 0 26 10" width="26" height="10">'
        f'<path class="line {colour(i)}"{dash(i)} d="M1 5H25"/></svg>{escape(name)}</li>'
        for i, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(items)}</ul>\n'


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars from zero: name, length, the number as text."""
    row_height, bar_height, width = 34.0, 18.0, 560.0
    left = _name_width([name for name, _, _ in rows])
    right = 12 + _CHARACTER * max(len(text) for _, _, text in rows)
    longest = max((value for _, value, _ in rows if math.isfinite(value)), default=0) or 1.0
    parts = []
    for i, (name, value, text) in enumerate(rows):
        y = i * row_height
        length = max(1.0, (width - left - right) * min(1.0, value / longest))
        middle = y + row_height / 2 + 4.5
        parts.append(
            f'<text x="{left - 10:.1f}" y="{middle:.1f}" text-anchor="end">{escape(_label(name))}</text>'
            f'<rect class="fill {colour(i)}" x="{left:.1f}" y="{y + 8:.1f}" width="{length:.1f}" '
            f'height="{bar_height}" rx="2"/>'
            f'<text class="strong" x="{left + length + 8:.1f}" y="{middle:.1f}">{escape(text)}</text>'
        )
    return _svg(width, row_height * len(rows), "".join(parts))


def dots(rows: Sequence[tuple[str, float, str]], unit: str) -> str:
    """A dot for each row on a scale without a zero, as that of decibels."""
    row_height, width, scale_height = 34.0, 560.0, 26.0
    left = _name_width([name for name, _, _ in rows])
    right = 16 + _CHARACTER * max(len(text) for _, _, text in rows)
    finite = [value for _, value, _ in rows if math.isfinite(value)] or [0.0]
    step = nice_step(max(finite) - min(finite) + 1)
    low = step * math.floor(min(finite) / step)
    high = step * max(math.ceil(max(finite) / step), round(low / step) + 1)

    def x(value: float) -> float:
        # What has no error lies at the end.
        return left + (width - left - right) * min(1.0, (value - low) / (high - low))

    bottom = row_height * len(rows)
    parts = [
        f'<path class="rule" d="M{x(low + i * step):.1f} 0V{bottom}"/>'
        f'<text class="soft" x="{x(low + i * step):.1f}" y="{bottom + 18}" text-anchor="middle">'
        f"{low + i * step:g}{escape(unit) if i == 0 else ''}</text>"
        for i in range(round((high - low) / step) + 1)
    ]
    for i, (name, value, text) in enumerate(rows):
        y = (i + 0.5) * row_height
        parts.append(
            f'<text x="{left - 10:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{escape(_label(name))}</text>'
            f'<path class="rule" d="M{left:.1f} {y:.1f}H{width - right:.1f}"/>'
            f'<circle class="dot {colour(i)}" cx="{x(value):.1f}" cy="{y:.1f}" r="7"/>'
            f'<text class="strong" x="{x(value) + 13:.1f}" y="{y + 4.5:.1f}">{escape(text)}</text>'
        )
    return _svg(width, bottom + scale_height, "".join(parts))


def lines(
    series: Sequence[Series],
    ticks: Sequence[str],
    x_title: str,
    y_title: str,
    width: float = 560.0,
) -> str:
    """One line a series over positions with names; the y axis begins at zero."""
    frame = _Frame(52, 26, width - 68, 210)
    top = max((v for s in series for v in s.values if math.isfinite(v)), default=0)
    step = nice_step(top)
    top = step * max(1, math.ceil(top / step - 1e-9))
    last = max(1, len(ticks) - 1)

    def x(index: float) -> float:
        return frame.left + frame.width * (index / last if len(ticks) > 1 else 0.5)

    def y(value: float) -> float:
        return frame.top + frame.height * (1 - value / top)

    parts = [f'<text class="soft" x="0" y="12">{escape(y_title)}</text>']
    for i in range(round(top / step) + 1):
        height = y(i * step)
        parts.append(
            f'<path class="rule" d="M{frame.left} {height:.1f}H{frame.left + frame.width}"/>'
            f'<text class="soft" x="{frame.left - 8}" y="{height + 4:.1f}" text-anchor="end">'
            f"{i * step:g}</text>"
        )
    stride = max(1, math.ceil(len(ticks) / 10))
    base = frame.top + frame.height
    parts += [
        f'<text class="soft" x="{x(i):.1f}" y="{base + 20}" text-anchor="middle">{escape(tick)}</text>'
        for i, tick in enumerate(ticks)
        if i % stride == 0
    ]
    middle = frame.left + frame.width / 2
    parts.append(
        f'<text class="soft" x="{middle}" y="{base + 42}" text-anchor="middle">{escape(x_title)}</text>'
    )
    for i, (_, values) in enumerate(series):
        points = [(x(j), y(v)) for j, v in enumerate(values) if math.isfinite(v)]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path class="line {colour(i)}"{dash(i)} d="M{path}"/>')
        parts += [
            f'<circle class="dot {colour(i)}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points
        ]
    return _svg(width, base + 48, "".join(parts))


def heat_map(rows: Sequence[Series], columns: Sequence[str], groups: Sequence[str]) -> str:
    """A cell for each value, darker where it is larger; groups of equally many columns."""
    cell_width, cell_height = 56.0, 30.0
    left, top = _name_width([row.name for row in rows]), 44.0
    largest = max((v for row in rows for v in row.values if math.isfinite(v)), default=0) or 1.0
    group_width = cell_width * len(columns) / len(groups)
    parts = [
        f'<text class="soft" x="{left + (i + 0.5) * group_width:.1f}" y="14" text-anchor="middle">'
        f"{escape(group)}</text>"
        for i, group in enumerate(groups)
    ]
    parts += [
        f'<text class="soft" x="{left + (i + 0.5) * cell_width:.1f}" y="34" text-anchor="middle">'
        f"{escape(column)}</text>"
        for i, column in enumerate(columns)
    ]
    for i, (name, values) in enumerate(rows):
        y = top + i * cell_height
        parts.append(
            f'<text x="{left - 10:.1f}" y="{y + 20}" text-anchor="end">{escape(_label(name))}</text>'
        )
        for j, value in enumerate(values):
            # The square root leaves small errors apart.
            share = math.sqrt(max(0.0, value) / largest) if math.isfinite(value) else 0.0
            x = left + j * cell_width
            tone = " light" if share > 0.6 else ""
            parts.append(
                f'<rect class="cell" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{cell_width - 2}" '
                f'height="{cell_height - 2}" rx="3" fill-opacity="{0.04 + 0.96 * share:.3f}"/>'
                f'<text class="number{tone}" x="{x + cell_width / 2:.1f}" y="{y + 20}" '
                f'text-anchor="middle">{_short(value)}</text>'
            )
    width = left + cell_width * len(columns)
    return _svg(width, top + cell_height * len(rows), "".join(parts))


def nice_step(largest: float) -> float:
    """1, 2 or 5 times a power of ten: four to ten steps reach `largest`."""
    if not largest > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest / 4))
    return next(power * n for n in (5, 2, 1) if power * n <= largest / 4 * (1 + 1e-9))


def _name_width(names: Sequence[str]) -> float:
    return 12 + _CHARACTER * max(len(_label(name)) for name in names)


def _label(name: str) -> str:
    """The name, without its middle if it is long; tables have it whole."""
    if len(name) <= _LABEL_CHARACTERS:
        return name
    half = (_LABEL_CHARACTERS - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _short(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _svg(width: float, height: float, content: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {width:.0f} {height:.0f}" role="img">{content}</svg>\n'
