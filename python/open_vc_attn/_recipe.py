# SPDX-License-Identifier: BSD-3-Clause
"""Numeric options of every attention layer of a model, as ``open-vc-attn plan`` chose them."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

from . import _recipe_file
from ._checks import as_real, as_whole, shown
from ._numerics import Numerics

MOST = 2**31 - 1
"""Of layers, heads and channels: far beyond any model's."""


@final
@dataclass(frozen=True)
class RecipePart:
    """Numeric options of one layer at the noise levels from `low` to `high`."""

    numerics: Numerics
    low: float = 0.0
    high: float = math.inf
    """The next part begins here. The last one of a layer includes its end."""
    extra_steps: float | None = None
    """Mean over the heads, as measured."""
    error_percent: float | None = None
    """Relative L2 error of the layer's output on the queries that the plan was made from."""
    held_out_percent: float | None = None
    """The same on other queries, which the plan did not see."""

    def __post_init__(self) -> None:
        if not isinstance(self.numerics, Numerics):
            raise TypeError(
                f"numerics: {shown(self.numerics)}; expected a Numerics. Pass Numerics(...)."
            )
        low, high = as_real("low", self.low), as_real("high", self.high)
        if not (0 <= low < high and math.isfinite(low)):
            raise ValueError(
                f"low, high: {low:g}, {high:g}; expected 0 <= low < high, noise levels. "
                "Correct the range."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        for name in ("extra_steps", "error_percent", "held_out_percent"):
            value = getattr(self, name)
            if value is None:
                continue
            number = as_real(name, value)
            if not 0 <= number < math.inf:
                raise ValueError(
                    f"{name}: {number}; expected a finite number >= 0 or None. "
                    "Use None if it was not measured."
                )
            object.__setattr__(self, name, number)


@final
@dataclass(frozen=True)
class LayerRecipe:
    """What ``attention(..., recipe=)`` takes: the options of one call, from Recipe.at()."""

    numerics: Numerics
    model: str
    layer: int
    heads: int
    head_dim: int

    def require_shape(self, shape: Sequence[int]) -> None:
        """Refuses Q of another shape, whose last axes are heads and channels."""
        if shape[-2] != self.heads or shape[-1] != self.head_dim:
            raise ValueError(
                f"recipe: for {self.heads} heads of {self.head_dim} channels (model "
                f"{self.model!r}), but q has {shape[-2]} of {shape[-1]}; expected the model that "
                "the recipe was made for. Plan with captures of this model."
            )


@final
@dataclass(frozen=True)
class Recipe:
    """Numeric options of the attention layers of one model, by layer and noise level.

        recipe = Recipe.load("recipe.json", model="my-model")
        out = attention(q, k, v, recipe=recipe.at(layer=3, noise=0.6))

    ``open-vc-attn plan`` writes such files from captures of the model; docs/recipes.md describes
    them. A layer counts as in captures. Heads are not told apart: the library plans each of
    them itself, in every call.

    Raises:
        TypeError, ValueError: a field has the wrong type or value.
    """

    model: str
    """The name of the model that it was made for."""
    heads: int
    head_dim: int
    layers: Mapping[int, Sequence[RecipePart]]
    """The parts of each layer, by rising noise, without gaps between them."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """How it was made and what is expected of it, as JSON values; nothing reads it."""

    def __post_init__(self) -> None:
        require_name("model", self.model)
        for name in ("heads", "head_dim"):
            object.__setattr__(self, name, as_whole(name, getattr(self, name), 1, MOST))
        if not isinstance(self.layers, Mapping) or not self.layers:
            raise ValueError(
                f"layers: {shown(self.layers)}; expected a mapping with at least one layer. "
                "Pass {0: [RecipePart(...)]}."
            )
        layers = {
            as_whole("layer", layer, 0, MOST): _checked_parts(layer, parts)
            for layer, parts in self.layers.items()
        }
        object.__setattr__(self, "layers", MappingProxyType(dict(sorted(layers.items()))))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, model: str | None = None) -> Recipe:
        """Reads a recipe.

        Args:
            path: a file that save() or ``open-vc-attn plan`` wrote.
            model: the model that is about to run. A recipe for another one is refused.

        Raises:
            ValueError: the file is no recipe, one for another numeric contract than this
                library's, or one for another model.
            OSError: the file cannot be read.
        """
        recipe = _recipe_file.load(path, cls, RecipePart)
        if model is not None and require_name("model", model) != recipe.model:
            raise ValueError(
                f"model: {model!r}; expected {recipe.model!r}, which {os.fspath(path)} was made "
                "for. Plan with captures of this model."
            )
        return recipe

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the recipe as JSON. The file appears complete, or not at all.

        Raises:
            TypeError, ValueError: `about` holds what JSON cannot.
            OSError: the file cannot be written.
        """
        _recipe_file.save(path, self)

    def numerics(self, layer: int, noise: float | None = None) -> Numerics:
        """The numeric options of a layer at a noise level.

        Args:
            layer: counted as in captures, from 0.
            noise: noise level in the unit of the captures. May be left out where the recipe has
                one part for all of them.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the recipe has no such layer, or no part for this noise level.
        """
        number = as_whole("layer", layer, 0, MOST)
        if number not in self.layers:
            raise ValueError(
                f"layer: {number}; expected one of {', '.join(map(str, self.layers))}, the layers "
                "of the recipe. Plan with captures of this layer too."
            )
        parts = self.layers[number]
        first, last = parts[0], parts[-1]
        span = f"{first.low:g} to {last.high:g}"
        if noise is None:
            if len(parts) == 1 and first.low == 0 and last.high == math.inf:
                return first.numerics
            raise ValueError(
                f"noise: None; expected {span}: the recipe of layer {number} depends on the noise "
                "level. Pass that of the denoising step."
            )
        level = as_real("noise", noise)
        for part in parts:
            if part.low <= level < part.high:
                return part.numerics
        if level == last.high < math.inf:
            return last.numerics
        raise ValueError(
            f"noise: {level:g}; expected {span}, which the recipe of layer {number} covers. Use "
            "the unit of its captures, or plan with captures of this noise level too."
        )

    def at(self, layer: int, noise: float | None = None) -> LayerRecipe:
        """The same for attention(..., recipe=), which also checks heads and channels."""
        return LayerRecipe(
            self.numerics(layer, noise), self.model, int(layer), self.heads, self.head_dim
        )


def numerics_of_call(recipe: Any, q: Any, budget: Any, numerics: Any) -> Any:
    """What a call takes as its numeric options, whose argument `recipe` is given."""
    for name, value in (("budget", budget), ("numerics", numerics)):
        if value is not None:
            raise ValueError(
                f"recipe: given beside {name}; expected one of the two. Leave {name} out, or pass "
                "numerics=recipe.numerics(layer, noise) and change its fields."
            )
    if not isinstance(recipe, LayerRecipe):
        raise TypeError(
            f"recipe: {shown(recipe)}; expected a LayerRecipe. "
            "Pass Recipe.load(path).at(layer, noise)."
        )
    recipe.require_shape(q.shape)
    return recipe.numerics


def require_name(name: str, value: Any) -> str:
    """`value` if it is a name of a model: text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {shown(value)}; expected text. Pass the name of the model.")
    if not value.strip():
        raise ValueError(f"{name}: {value!r}; expected text. Pass the name of the model.")
    return value


def _checked_parts(layer: int, parts: Any) -> tuple[RecipePart, ...]:
    if (
        not isinstance(parts, Sequence)
        or not parts
        or not all(isinstance(part, RecipePart) for part in parts)
    ):
        raise ValueError(
            f"layers[{layer}]: {shown(parts)}; expected at least one RecipePart. Pass a list."
        )
    for before, after in itertools.pairwise(parts):
        if before.high != after.low:
            raise ValueError(
                f"layers[{layer}]: noise ends at {before.high:g} and goes on at {after.low:g}; "
                "expected ranges by rising noise without gaps. Let each begin where the one before "
                "ends."
            )
    return tuple(parts)
