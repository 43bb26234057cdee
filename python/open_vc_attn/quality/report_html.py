# SPDX-License-Identifier: BSD-3-Clause
"""A study as a page that needs nothing beside it: no scripts, no other files."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import torch

from . import charts
from .images import png
from .report import HEADINGS, cells, decibels
from .report_style import STYLE
from .study import FIRST_NOISE, NOISE_LEVELS, Outcome, Study

_GREY = 128
_VISIBLE_SHARE = 0.999
"""Of the pixels of a difference that amplification must not clip."""
_MAX_AMPLIFICATION = 64
_HALF, _WHOLE = 560.0, 1064.0  # widths of a card's content


def to_html(study: Study, outcomes: Sequence[Outcome], data: dict[str, Any]) -> str:
    """The page; `data` is what to_json() returned."""
    clip = data["clip"]
    frames = f"{clip['frames']} frames of {clip['width']} x {clip['height']}"
    source = f"{clip['source']}, {frames} from frame {clip['start']} on"
    body = [
        '<p class="eyebrow">Open-VC Attention: quality end to end</p>',
        "<h1>What the model's output sees of its attention's numerics</h1>",
        f'<p class="lead">{escape(source)}: {study.tokens:,} tokens. A video transformer of '
        f"{data['layers']} layers with {data['heads']} heads each denoises it in "
        f"{study.settings.steps} steps, once with exact attention and once with each of the "
        "numerics below; everything else is the same.</p>",
        _hero(outcomes[0]),
        section("All numerics", _table(outcomes) + _definitions(study)),
        section("Errors", f'<div class="grid">{_charts(study, outcomes)}</div>'),
        section("Single heads", _heads(study, outcomes)),
        section("Pictures", _pictures(study, outcomes)),
        _footer(data),
    ]
    return page(f"Quality of attention numerics: {clip['source']}", body)


def page(title: str, body: Sequence[str]) -> str:
    """A page with this title, which is text, around these elements."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n{''.join(body)}</main></body></html>\n"
    ).replace(" %", "\u00a0%")


def section(title: str, content: str) -> str:
    """Content under a heading, which is text."""
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>\n"


def card(title: str, content: str, caption: str, wide: bool = False) -> str:
    """A figure; its title is text, content and caption are elements."""
    kind = "card wide" if wide else "card"
    return (
        f'<figure class="{kind}"><h3>{escape(title)}</h3>\n{content}'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


def _hero(outcome: Outcome) -> str:
    facts = (
        (f"{outcome.velocity_error:.3g} %", "velocity error: the model's output, one evaluation"),
        (f"{decibels(outcome.psnr)} dB", "PSNR of the sampled clip"),
        (f"{outcome.ssim:.5f}", "SSIM of the sampled clip"),
        (f"{max(map(max, outcome.head_errors)):.3g} %", "error of the worst single head"),
    )
    items = "".join(f"<div><b>{value}</b><span>{text}</span></div>" for value, text in facts)
    return (
        f'<div class="card hero"><p class="name">{escape(outcome.numerics.name)}</p>'
        f'<div class="facts">{items}</div></div>\n'
    )


def _table(outcomes: Sequence[Outcome]) -> str:
    noise = "".join(f"<th>noise {heading}</th>" for heading in HEADINGS[1:4])
    rest = "<th>RMS, %</th><th>PSNR, dB</th><th>SSIM</th><th>worst head, %</th><th>ms a call</th>"
    rows = []
    for i, outcome in enumerate(outcomes):
        name, *numbers = (escape(cell) for cell in cells(outcome))
        numbers[3] = f"<b>{numbers[3]}</b>"
        key = f'<span class="swatch {charts.colour(i)}"></span>'
        columns = "".join(f"<td>{number}</td>" for number in numbers)
        description = escape(outcome.numerics.description)
        rows.append(f"<tr><td>{key}{name}<small>{description}</small></td>{columns}</tr>")
    return (
        f'<div class="card scroll"><table><thead><tr><th>numerics</th>{noise}{rest}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def _definitions(study: Study) -> str:
    seeds = study.settings.seeds
    return (
        "<dl><dt>velocity error</dt><dd>relative L2 of the model's whole output when every "
        "attention call uses the numerics, at three noise levels, and their RMS.</dd>"
        f"<dt>PSNR, SSIM</dt><dd>decoded pixels after {study.settings.steps} Euler steps from "
        f"noise {FIRST_NOISE:g}, against the same steps with exact attention; mean of {seeds} "
        f"sample{'s' if seeds > 1 else ''} of the noise.</dd><dt>head</dt><dd>relative L2 of a "
        "head's attention on the inputs that the exact model gives it, RMS of the noise levels."
        "</dd></dl>\n"
    )


def _charts(study: Study, outcomes: Sequence[Outcome]) -> str:
    names = [outcome.numerics.name for outcome in outcomes]
    key = charts.legend(names)
    errors = [
        (n, o.velocity_error, f"{o.velocity_error:.3f} %")
        for n, o in zip(names, outcomes, strict=True)
    ]

    def lines(values: str, ticks: Sequence[str], axis: str, width: float = _HALF) -> str:
        series = [charts.Series(o.numerics.name, getattr(o, values)) for o in outcomes]
        return key + charts.lines(series, ticks, axis, "relative L2, %", width)

    levels = [f"{sigma:g}" for sigma in NOISE_LEVELS]
    steps = [str(step) for step in range(1, study.settings.steps + 1)]
    layers = [str(layer) for layer in range(len(outcomes[0].layer_errors))]
    return (
        card("Velocity error", charts.bars(errors), "RMS of the noise levels. Shorter is better.")
        + card(
            "PSNR of the sampled clip",
            charts.dots(
                [
                    (n, o.psnr, f"{decibels(o.psnr)} dB")
                    for n, o in zip(names, outcomes, strict=True)
                ],
                " dB",
            ),
            "Against sampling with exact attention. Further to the right is better.",
        )
        + card(
            "Velocity error over noise levels",
            lines("velocity_errors", levels, "noise level"),
            "Each evaluation on its own.",
        )
        + card(
            "Latents over denoising steps",
            lines("latent_errors", steps, "step"),
            "Errors that always lean the same way add up over the steps; rounding noise averages "
            "out.",
        )
        + card(
            "Attention of whole layers",
            lines("layer_errors", layers, "layer", _WHOLE),
            "All heads of a layer together, on the exact model's inputs.",
            wide=True,
        )
    )


def _heads(study: Study, outcomes: Sequence[Outcome]) -> str:
    layers, heads = len(outcomes[0].head_errors), len(outcomes[0].head_errors[0])
    rows = [
        charts.Series(o.numerics.name, [error for layer in o.head_errors for error in layer])
        for o in outcomes
    ]
    columns = [f"head {head}" for _ in range(layers) for head in range(heads)]
    chart = charts.heat_map(rows, columns, [f"layer {layer}" for layer in range(layers)])
    return card(
        "Error of each head, %",
        f'<div class="scroll">{chart}</div>',
        "Relative to the head's own output: a head whose output is small may have a large error "
        "that the model hardly sees.",
        wide=True,
    )


def _pictures(study: Study, outcomes: Sequence[Outcome]) -> str:
    differences = [_difference(outcome, study) for outcome in outcomes]
    factor = amplification(differences)
    parts = [
        '<div class="pictures">',
        _picture(study.clip_frame, "input clip", "the middle frame"),
        _picture(study.exact_frame, "exact attention", "the sample that the others are held to"),
        "</div>",
    ]
    for outcome, difference in zip(outcomes, differences, strict=True):
        shown = (difference * factor + _GREY).clamp(0, 255).to(torch.uint8)
        name = escape(outcome.numerics.name)
        quality = f"{decibels(outcome.psnr_of_seeds[0])} dB"
        parts += [
            '<div class="pictures">',
            _picture(outcome.frame, name, quality),
            _picture(shown, f"{name} minus exact", f"{factor} times, around grey"),
            "</div>",
        ]
    return "".join(parts) + "\n"


def _difference(outcome: Outcome, study: Study) -> torch.Tensor:
    return outcome.frame.int() - study.exact_frame.int()


def amplification(differences: Sequence[torch.Tensor]) -> int:
    """The largest power of two that leaves nearly all differences visible; the same for all."""
    every = torch.cat([difference.abs().flatten() for difference in differences])
    rank = min(len(every), math.ceil(_VISIBLE_SHARE * len(every)))
    largest = int(every.kthvalue(rank).values)
    if largest == 0:
        return _MAX_AMPLIFICATION
    return min(_MAX_AMPLIFICATION, 2 ** max(0, math.floor(math.log2((_GREY - 1) / largest))))


def _picture(image: torch.Tensor | None, name: str, caption: str) -> str:
    assert image is not None
    height, width, _ = image.shape
    encoded = base64.b64encode(png(image)).decode()
    return (
        f'<figure><img width="{width}" height="{height}" alt="{name}" '
        f'src="data:image/png;base64,{encoded}"><figcaption><b>{name}</b> {caption}</figcaption>'
        "</figure>\n"
    )


def _footer(data: dict[str, Any]) -> str:
    about = (
        f"open-vc-attn {data['version']}; model {data['model']}; {data['device']}; the model "
        f"outside of attention in {data['dtype']}; grid {' x '.join(map(str, data['grid']))}"
    )
    return f"<footer>{escape(about)}</footer>\n"
