# SPDX-License-Identifier: BSD-3-Clause
"""Where FP8 attention is allowed inside a model."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ._checks import as_whole, require_bool, shown

FEWEST_TOKENS = 4096
"""Below, BF16 attention is as fast or faster (README.md, short calls)."""

_MOST = 2**31 - 1
_COUNTS = ("first_steps", "last_steps", "first_layers", "last_layers", "min_keys", "min_queries")


class Step(NamedTuple):
    """A denoising step of a sampler."""

    index: int
    count: int
    noise: float | None = None
    """Noise level, in the unit of recipes."""


class Place(NamedTuple):
    """A layer of a model."""

    name: str
    index: int | None
    """Of its block among those of the model; None for a layer outside of them."""
    count: int
    """Blocks of the model."""


@dataclass(frozen=True)
class Policy:
    """Which attention calls of a model run in FP8. The others stay what they were.

    A layer is a block of the model with all attention in it. The number that `first_layers` keeps
    counts from the first block of each model of a pipeline, `last_layers` from the last.

    Args:
        first_steps, last_steps: denoising steps kept out of FP8 at either end.
        first_layers, last_layers: blocks kept out of FP8 at either end.
        layers: the layers that may run in FP8: patterns of module names ("blocks.*.attn1"), or a
            function (name, index, count) -> bool.
        steps: a function (index, count) -> bool: the steps that may.
        min_keys, min_queries: calls of fewer keys or queries are faster without.
        cross: whether calls with unlike numbers of queries and keys may.

    Raises:
        TypeError, ValueError: an argument has the wrong type or value.
    """

    first_steps: int = 0
    last_steps: int = 0
    first_layers: int = 0
    last_layers: int = 0
    layers: Sequence[str] | Callable[[str, int | None, int], bool] | None = None
    steps: Callable[[int, int], bool] | None = None
    min_keys: int = FEWEST_TOKENS
    min_queries: int = FEWEST_TOKENS
    cross: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            object.__setattr__(self, name, as_whole(name, getattr(self, name), 0, _MOST))
        require_bool("cross", self.cross)
        if self.steps is not None and not callable(self.steps):
            raise TypeError(
                f"steps: {shown(self.steps)}; expected a function (index, count) -> bool or None. "
                "Use first_steps and last_steps for numbers."
            )
        if self.layers is None or callable(self.layers):
            return
        patterns = (self.layers,) if isinstance(self.layers, str) else self.layers
        if not isinstance(patterns, Sequence) or not all(isinstance(x, str) for x in patterns):
            raise TypeError(
                f"layers: {shown(self.layers)}; expected patterns of module names, or a function "
                "(name, index, count) -> bool. Pass a list of strings."
            )
        object.__setattr__(self, "layers", tuple(patterns))

    @classmethod
    def careful(cls) -> Policy:
        """One step and one block at each end stay out of FP8."""
        return cls(first_steps=1, last_steps=1, first_layers=1, last_layers=1)

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """A policy from a JSON object of its arguments, functions aside.

        Raises:
            TypeError, ValueError: the text is no such object.
        """
        values = json.loads(text)
        if not isinstance(values, Mapping):
            raise TypeError(f"policy: {shown(values)}; expected a JSON object. Pass {{}} for all.")
        names = [field.name for field in fields(cls) if field.name != "steps"]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise TypeError(
                f"policy: {', '.join(unknown)}; expected {', '.join(names)}. Remove it."
            )
        return cls(**values)

    @property
    def needs_steps(self) -> bool:
        """Whether it asks for the denoising step."""
        return self.steps is not None or bool(self.first_steps or self.last_steps)

    def reason_against(
        self, queries: int, keys: int, cross: bool, place: Place, step: Step | None
    ) -> str:
        """Why a call stays out of FP8; empty if it need not."""
        if keys < self.min_keys:
            return f"policy: fewer than {self.min_keys} keys"
        if queries < self.min_queries:
            return f"policy: fewer than {self.min_queries} queries"
        if cross and not self.cross:
            return "policy: cross-attention"
        if not self._allows_layer(place):
            return "policy: layer"
        if self.needs_steps and (step is None or not self._allows_step(step)):
            return "policy: step" if step is not None else "policy: no step is known"
        return ""

    def _allows_layer(self, place: Place) -> bool:
        name, index, count = place
        if index is not None and not self.first_layers <= index < count - self.last_layers:
            return False
        if self.layers is None:
            return True
        if callable(self.layers):
            return bool(self.layers(name, index, count))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.layers)

    def _allows_step(self, step: Step) -> bool:
        if not self.first_steps <= step.index < step.count - self.last_steps:
            return False
        return self.steps is None or bool(self.steps(step.index, step.count))


def as_policy(policy: Any) -> Policy:
    """The policy that callers may leave out."""
    if policy is None:
        return Policy()
    if not isinstance(policy, Policy):
        raise TypeError(f"policy: {shown(policy)}; expected a Policy. Pass Policy(...).")
    return policy
