# SPDX-License-Identifier: BSD-3-Clause
"""A study as data and as a table of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .study import FIRST_NOISE, NOISE_LEVELS, Outcome, Study

_DIGITS = 6


def to_json(study: Study, outcomes: Sequence[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    """Everything measured; docs/quality.md describes the keys. A PSNR without any difference is
    null."""
    return {
        **about,
        "tokens": study.tokens,
        "grid": list(study.grid),
        "steps": study.settings.steps,
        "seeds": study.settings.seeds,
        "dtype": study.settings.dtype,
        "noise_levels": list(NOISE_LEVELS),
        "first_noise": FIRST_NOISE,
        "numerics": [_outcome(outcome) for outcome in outcomes],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.numerics.name,
        "description": outcome.numerics.description,
        "velocity_error_percent": _round(outcome.velocity_error),
        "velocity_error_percent_of_noise_levels": _round(outcome.velocity_errors),
        "psnr_db": _round(outcome.psnr),
        "psnr_db_of_seeds": _round(outcome.psnr_of_seeds),
        "ssim": _round(outcome.ssim),
        "ssim_of_seeds": _round(outcome.ssim_of_seeds),
        "latent_error_percent_of_steps": _round(outcome.latent_errors),
        "layer_error_percent": _round(outcome.layer_errors),
        "head_error_percent": _round(outcome.head_errors),
        "milliseconds_per_call": _round(outcome.milliseconds_per_call),
        "seconds": _round(outcome.seconds),
    }


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(x) for x in value]
    return round(value, _DIGITS) if math.isfinite(value) else None


def decibels(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "same"


HEADINGS = (
    "numerics",
    *(f"{sigma:g}" for sigma in NOISE_LEVELS),
    "RMS",
    "PSNR",
    "SSIM",
    "worst head",
    "ms/call",
)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """A row under HEADINGS."""
    return (
        outcome.numerics.name,
        *(f"{error:.3f}" for error in outcome.velocity_errors),
        f"{outcome.velocity_error:.3f}",
        decibels(outcome.psnr),
        f"{outcome.ssim:.5f}",
        f"{max(max(layer) for layer in outcome.head_errors):.2f}",
        f"{outcome.milliseconds_per_call:.2f}",
    )


def to_table(study: Study, outcomes: Sequence[Outcome]) -> str:
    rows = [HEADINGS, *(cells(outcome) for outcome in outcomes)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = [
        f"{study.tokens:,} tokens; velocity error in % at noise {', '.join(HEADINGS[1:4])} and its "
        f"RMS; PSNR in dB and SSIM after {study.settings.steps} steps, mean of "
        f"{study.settings.seeds} seed{'s' if study.settings.seeds > 1 else ''}; relative L2 of the "
        "worst head in %"
    ]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]).rstrip())
    return "\n".join(lines) + "\n"
