# SPDX-License-Identifier: BSD-3-Clause
"""Which captures there are, and what they say about their place in the model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import is_supported
from .._capture_file import Capture, load_capture
from .._recipe import MOST

SUFFIX = ".safetensors"
_NOISE_KEYS = ("sigma", "noise")
_RANK_WITH_BATCH = 4


class Place(NamedTuple):
    """A layer at a noise level; None where captures do not say it: all levels together."""

    layer: int
    noise: float | None

    def __str__(self) -> str:
        level = "all noise levels" if self.noise is None else f"noise {self.noise:g}"
        return f"layer {self.layer}, {level}"


class Source(NamedTuple):
    """A capture, not yet in memory."""

    path: Path
    place: Place
    queries: int
    keys: int
    captured_heads: int

    def load(self) -> Capture:
        """The capture with a batch axis."""
        capture = load_capture(self.path)
        q, k, v = (x if x.dim() == _RANK_WITH_BATCH else x[None] for x in capture[:3])
        return capture._replace(q=q, k=k, v=v)


class Captures(NamedTuple):
    """The captures of one model."""

    model: str
    heads: int
    head_dim: int
    sources: Mapping[Place, Sequence[Source]]
    """By layer and noise level, in this order."""


def find(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Files; of a folder those that are captures by their names, in order."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(path.glob(f"*{SUFFIX}"))
        if not found:
            raise ValueError(
                f"{path}: found no *{SUFFIX}; expected captures. Name their folder or the files."
            )
        files += found
    first: dict[Path, Path] = {}
    for file in files:
        other = first.setdefault(file.resolve(), file)
        if other is not file:
            raise ValueError(f"{file}: found twice; expected each capture once. Name it once.")
    return files


def survey(
    paths: Sequence[Path],
    model: str | None = None,
    heads: int | None = None,
    noise_of_step: Mapping[int, float] | None = None,
) -> Captures:
    """Reads what the captures say, one after the other, and refuses what does not fit together.

    Args:
        paths: files of captures.
        model: the name of the model, for captures that do not tell it.
        heads: the heads of a layer, for captures of some heads that do not tell it.
        noise_of_step: noise levels of steps, for captures that tell their step alone.
    """
    if not paths:
        raise ValueError("--input: none; expected captures. Name files or their folder.")
    models, heads_of, channels = _Same("model"), _Same("heads"), _Same("channels of a head")
    sources: dict[Place, list[Source]] = {}
    for path in paths:
        capture = load_capture(path)
        models.add(path, _model(path, capture.metadata, model))
        heads_of.add(path, _heads(path, capture, heads))
        _require_usable(path, capture)
        place = Place(_layer(path, capture.metadata), _noise(path, capture.metadata, noise_of_step))
        channels.add(path, int(capture.q.shape[-1]))
        *_, queries, captured, _ = capture.q.shape
        source = Source(path, place, queries, capture.k.shape[-3], captured)
        sources.setdefault(place, []).append(source)
    _require_alike(sources)
    ordered = {place: sources[place] for place in sorted(sources, key=_order)}
    return Captures(models.value, heads_of.value, channels.value, ordered)


class _Same:
    """A value that all captures must agree on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.value: Any = None
        self._path: Path | None = None

    def add(self, path: Path, value: Any) -> None:
        if self._path is None:
            self.value, self._path = value, path
        elif value != self.value:
            raise ValueError(
                f"{path}: found {self._name} {value!r}; expected {self.value!r} as in "
                f"{self._path}: a recipe is for one model. Plan each model by itself."
            )


def _order(place: Place) -> tuple[int, float]:
    return place.layer, -1.0 if place.noise is None else place.noise


def _model(path: Path, metadata: Mapping[str, str], asked: str | None) -> str:
    said = metadata.get("model", "").strip()
    if said and asked is not None and said != asked:
        raise ValueError(
            f"{path}: found model {said!r}; expected --model {asked}. Leave the file or the option out."
        )
    if not said and asked is None:
        raise ValueError(
            f"{path}: found no model; expected its name, by which a recipe for another one is "
            "refused. Give it: --model NAME."
        )
    return said or str(asked)


def _heads(path: Path, capture: Capture, asked: int | None) -> int:
    """The heads of the layer, of which the capture may hold some."""
    captured = int(capture.q.shape[-2])
    metadata = capture.metadata
    said = _recorded_heads(path, metadata.get("shapes_bhsd"))
    if said is None and metadata.get("head") is None and metadata.get("heads", "all") == "all":
        said = captured
    if said is not None and asked is not None and said != asked:
        raise ValueError(
            f"{path}: found {said} heads; expected --heads {asked}. Leave the file or the option out."
        )
    if said is None and asked is None:
        raise ValueError(
            f"{path}: found some heads of a layer; expected the number of all of them. Give it: "
            "--heads N."
        )
    heads = int(said if asked is None else asked)
    if captured > heads:
        raise ValueError(
            f"{path}: found {captured} heads; expected at most {heads}, the heads of a layer. "
            "Correct --heads or the file."
        )
    return heads


def _recorded_heads(path: Path, shapes: str | None) -> int | None:
    """From what capture() writes: shapes of Q, K and V with all heads, such as 1x24x4096x128."""
    if shapes is None:
        return None
    try:
        return int(shapes.split()[0].split("x")[-3])
    except (IndexError, ValueError):
        raise ValueError(
            f"{path}: found shapes_bhsd {shapes!r}; expected shapes such as 1x24x4096x128. Correct "
            "it in the file."
        ) from None


def _layer(path: Path, metadata: Mapping[str, str]) -> int:
    text = metadata.get("layer")
    if text is None:
        raise ValueError(
            f"{path}: found no layer; expected its number in the metadata. capture() writes it."
        )
    # Python's int() also takes spaces and underscores.
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST):
        raise ValueError(
            f"{path}: found layer {text!r}; expected a whole number >= 0. Correct it in the file."
        )
    return int(text)


def _noise(
    path: Path, metadata: Mapping[str, str], noise_of_step: Mapping[int, float] | None
) -> float | None:
    said = [(key, metadata[key]) for key in _NOISE_KEYS if key in metadata]
    levels = set()
    for key, text in said:
        try:
            level = float(text)
        except ValueError:
            level = math.nan
        if not 0 <= level < math.inf:
            raise ValueError(
                f"{path}: found {key} {text!r}; expected a noise level >= 0. Correct it in the file."
            )
        levels.add(level)
    if len(levels) > 1:
        raise ValueError(
            f"{path}: found {' and '.join(f'{key} {text!r}' for key, text in said)}; expected one "
            "noise level. Store it once."
        )
    if levels:
        return levels.pop()
    if not noise_of_step:
        return None
    step = metadata.get("step", "")
    if not step.isdecimal() or int(step) not in noise_of_step:
        raise ValueError(
            f"{path}: found step {step!r}; expected one of "
            f"{', '.join(map(str, sorted(noise_of_step)))}, whose noise levels are given. Give "
            "its own: --noise STEP=LEVEL."
        )
    return noise_of_step[int(step)]


def _require_usable(path: Path, capture: Capture) -> None:
    if capture.masked:
        raise ValueError(
            f"{path}: found a call with a mask; expected one without, as attention() computes. "
            "Leave the file out."
        )
    support = is_supported(*capture[:3], causal=capture.causal, softmax_scale=capture.softmax_scale)
    if not support:
        raise ValueError(f"{path}: {support.reason}")


def _require_alike(sources: Mapping[Place, Sequence[Source]]) -> None:
    """Refuses a layer that says its noise level in some captures and not in others."""
    by_layer: dict[int, Source] = {}
    for place, group in sources.items():
        other = by_layer.setdefault(place.layer, group[0])
        if (other.place.noise is None) != (place.noise is None):
            raise ValueError(
                f"{group[0].path}: found {place}, but {other.place} in {other.path}; expected "
                "noise levels in all captures of a layer or in none. Give those of steps: --noise "
                "STEP=LEVEL."
            )
