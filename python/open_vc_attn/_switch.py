# SPDX-License-Identifier: BSD-3-Clause
"""What enable() returns: options, policy, the count of calls, and the way back. Imports no torch."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ._checks import as_real, as_whole, require_one_of, shown
from ._native_options import call_options
from ._numerics import NumericsLike
from ._policy import Place, Policy, Step, as_policy
from ._recipe import Recipe
from ._switch_report import Record, block_positions, table
from ._warnings import warn_user

MASKS = ("trim", "refuse")
_MOST = 2**31 - 1

_numbers = itertools.count(1)
_switches: weakref.WeakValueDictionary[int, Switch] = weakref.WeakValueDictionary()


class Options(NamedTuple):
    """How FP8 calls of a switch compute, and what serves the others."""

    budget: Any = None
    numerics: NumericsLike = None
    recipe: Recipe | None = None
    key_order: str = "mid_window"
    otherwise: Any = "native"
    masks: str = "trim"

    def checked(self) -> Options:
        """The same after a look at every field.

        Raises:
            TypeError, ValueError: a field has the wrong type or value.
        """
        call_options(False, None, self.key_order, self.budget, self.numerics)
        if self.recipe is not None:
            if not isinstance(self.recipe, Recipe):
                raise TypeError(
                    f"recipe: {shown(self.recipe)}; expected a Recipe, from which each layer takes "
                    "its part. Pass Recipe.load(path)."
                )
            if self.budget is not None or self.numerics is not None:
                raise ValueError(
                    "recipe: given beside budget or numerics; expected one of them. Leave the "
                    "others out."
                )
        require_one_of("masks", self.masks, MASKS)
        if not callable(self.otherwise):
            require_one_of("otherwise", self.otherwise, ("native", "error"))
        return self


class Layer:
    """An attention module of a switched model. Adapters get it from Switch.add_layer()."""

    def __init__(self, switch: Switch, number: int, name: str, model: str, native: Any) -> None:
        self.switch = switch
        self.number = number
        self.name = name
        self.model = model
        self.ordinal: int | None = None
        """The layer of a recipe. None where the adapter counts calls instead."""
        self.counter: Any = None
        """What the adapter counts them with."""
        self.native = native
        self.previous: Any = None
        """What the adapter restores."""
        self.first_row_decides = False
        """Whether a mask [B, 1, Nq, Nk] of this module is an outer product of key padding."""
        self.token: Any = None
        """A tensor of two numbers, switch and layer: compiled functions pass it on unread."""

    def __deepcopy__(self, _: Any) -> Layer:
        return self  # a copied model is switched by the same switch

    def __reduce__(self) -> Any:
        return _forgotten_layer, ()


def _forgotten_layer() -> None:
    """What a saved model has in place of its layers."""


class Switch:
    """FP8 attention of a model, from enable().

    As a context manager it is disabled at the end of the block.
    """

    def __init__(self, policy: Policy | None = None, options: Options | None = None) -> None:
        self.number = next(_numbers)
        self.options = (options or Options()).checked()
        self.enabled = True
        self._step_source: Callable[[], Step | None] | None = None
        self._manual_step: Step | None = None
        self._policy = as_policy(policy)
        self._layers: list[Layer] = []
        self._places: dict[int, Place] = {}
        self._undo: list[Callable[[], None]] = []
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        _switches[self.number] = self

    # What users call.

    @property
    def policy(self) -> Policy:
        """Where FP8 is allowed. Assign another one between runs; the next call follows it."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self.require_steps(as_policy(policy))
        self._policy = as_policy(policy)

    @property
    def calls(self) -> list[Record]:
        """One record for each layer, shape and reason."""
        with self._lock:
            counts = list(self._counts.items())
        records = [self._record(*key, count) for key, count in counts]
        return sorted(records, key=lambda record: record.order)

    def report(self) -> str:
        """A table: calls in FP8 and elsewhere by layer and shape, and the reason of each."""
        return table(self.calls)

    def reset(self) -> None:
        """Forgets the calls so far."""
        with self._lock:
            self._counts.clear()

    def step(self, index: int, count: int, noise: float | None = None) -> None:
        """Tells the denoising step, where no pipeline does.

        Args:
            index: from 0.
            count: number of steps.
            noise: noise level, for a recipe that asks for it.

        Raises:
            TypeError, ValueError: an argument has the wrong type or value.
        """
        count = as_whole("count", count, 1, _MOST)
        index = as_whole("index", index, 0, count - 1)
        self._manual_step = Step(index, count, None if noise is None else as_real("noise", noise))

    def disable(self) -> None:
        """Restores what was there before.

        Raises:
            RuntimeError: it is disabled already, or another enable() has replaced it.
        """
        if not self.enabled:
            raise RuntimeError(
                "switch: disabled already, by disable() or by a later enable(); expected one that "
                "is on. Use the switch that the last enable() returned."
            )
        self.enabled = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            self.disable()

    # What adapters call.

    def add_layer(self, name: str, *, model: str = "", native: Any = None) -> Layer:
        """A layer more.

        Args:
            name: of the module within its model, as in named_modules().
            model: tells the models of a pipeline apart ("transformer_2").
            native: what serves the calls that FP8 does not, in the form of integrations.sdpa;
                that function itself if left out.
        """
        layer = Layer(self, len(self._layers), name, model, native)
        self._layers.append(layer)
        self._places = {}
        return layer

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(self._layers)

    def on_disable(self, undo: Callable[[], None]) -> None:
        """`undo` runs in disable(), the latest first."""
        self._undo.append(undo)

    def follow_steps(self, source: Callable[[], Step | None]) -> None:
        """`source` tells the step at any time; None where it does not know."""
        self._step_source = source

    @property
    def follows_steps(self) -> bool:
        return self._step_source is not None

    def require_steps(self, policy: Policy) -> None:
        """Refuses a policy on steps where nobody tells them."""
        if policy.needs_steps and self._step_source is None and self._manual_step is None:
            raise ValueError(
                "policy: depends on the denoising step, which a model alone does not tell; "
                "expected a pipeline. Pass the pipeline to enable(), or enable the model without "
                "steps in the policy, call switch.step(index, count) before each of them, and "
                "assign switch.policy after the first."
            )

    def require_noise(self) -> None:
        """Refuses a recipe that asks for noise levels where nobody tells them."""
        recipe = self.options.recipe
        if recipe is None or self._step_source is not None or self._manual_step is not None:
            return
        whole = 0.0, math.inf
        parts = [part for parts in recipe.layers.values() for part in parts]
        if any((part.low, part.high) != whole for part in parts):
            raise ValueError(
                "recipe: depends on the noise level, which a model alone does not tell; expected a "
                "pipeline. Pass the pipeline to enable()."
            )

    def current_step(self) -> Step | None:
        """The denoising step, as the pipeline or step() tells it."""
        if self._manual_step is not None:
            return self._manual_step
        return None if self._step_source is None else self._step_source()

    def place(self, layer: Layer) -> Place:
        """Where a layer stands in its model."""
        if layer.number not in self._places:
            self._places = self._find_places()
        return self._places[layer.number]

    def count(
        self, layer: Layer | None, queries: int, keys: int, heads: int, reason: str, traced: bool
    ) -> None:
        """Counts a call; `reason` is empty for FP8, `traced` if a compiler saw it."""
        number = None if layer is None else layer.number
        with self._lock:
            self._counts[number, queries, keys, heads, reason, traced] += 1

    def warn_once(self, reason: str, message: str) -> None:
        """One warning for each reason."""
        if reason not in self._warned:
            self._warned.add(reason)
            warn_user(message)

    def _find_places(self) -> dict[int, Place]:
        places = {}
        for model in {layer.model for layer in self._layers}:
            layers = [layer for layer in self._layers if layer.model == model]
            positions, count = block_positions([layer.name for layer in layers])
            for layer, index in zip(layers, positions, strict=True):
                places[layer.number] = Place(layer.name, index, count)
        return places

    def _record(
        self,
        number: int | None,
        queries: int,
        keys: int,
        heads: int,
        reason: str,
        traced: bool,
        count: int,
    ) -> Record:
        layer = None if number is None else self._layers[number]
        name = "" if layer is None else ".".join(filter(None, (layer.model, layer.name)))
        order = (-1 if number is None else number, queries, keys, reason)
        return Record(name, queries, keys, heads, reason, count, traced, order)


def switch_of(number: int) -> Switch | None:
    """The switch of this number, if it lives."""
    return _switches.get(number)
