# SPDX-License-Identifier: BSD-3-Clause
"""What V-Smooth keeps from one denoising step to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch

from .._checks import as_whole, shown
from .k_means import MAX_CLUSTERS, k_means, sorted_by

CLUSTERS, ITERATIONS, WARM_ITERATIONS = 64, 4, 2
REGROUP_EVERY = 4
GROUPED_SHARE = 4
"""The first of this many parts of the steps is grouped."""
MANY = 1 << 20

LayerName = int | str | tuple[int | str, ...]


class Order(NamedTuple):
    """How the keys and values of one attention call are ordered and smoothed."""

    permutation: torch.Tensor | None
    """[heads, rows]; None leaves the order as it is."""
    demean: bool


@dataclass
class _Layer:
    shape: tuple[int, ...]
    device: torch.device
    permutation: torch.Tensor | None = None
    centroids: torch.Tensor | None = None
    grouped_step: int | None = None
    evaluation: int = -1
    """The last evaluation of the model that used it."""


def group(
    v: torch.Tensor, clusters: int, iterations: int, start: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(permutation, centroids) of v, [heads, rows, channels]."""
    labels, centroids = k_means(v, clusters, iterations, start)
    return sorted_by(labels), centroids


@final
class VSmoothState:
    """Permutations and centroids of every attention layer of a model over the steps of a sampler.

        state = VSmoothState(steps=40)
        for step in range(40):
            state.begin_step(step)              # before each evaluation of the model
            ... vc_attention(q, k, v, state=state, layer=("cond", 3))

    In the first quarter of the steps, `grouped_steps` of them, the means of sorted V are removed;
    V is sorted anew every `regroup_every` steps, from the centroids of the time before. After
    that the last permutation stays and nothing is removed. Calls with different weights or
    different inputs need names of their own: a layer of the conditional and of the unconditional
    pass, of each expert. Items of a batch are apart anyway.

    One state serves one sample at a time, from one thread.
    """

    def __init__(
        self,
        steps: int,
        *,
        clusters: int = CLUSTERS,
        iterations: int = ITERATIONS,
        warm_iterations: int = WARM_ITERATIONS,
        grouped_steps: int | None = None,
        regroup_every: int = REGROUP_EVERY,
    ) -> None:
        """
        Args:
            steps: of the sampler.
            clusters: of k-means in every head.
            iterations, warm_iterations: of k-means, the first time and after it.
            grouped_steps: how many of the first steps are grouped; a quarter of them, rounded up,
                by default. 0 groups none.
            regroup_every: steps after which V is sorted anew.
        """
        self.steps = as_whole("steps", steps, 1, MANY)
        self.clusters = as_whole("clusters", clusters, 1, MAX_CLUSTERS)
        self.iterations = as_whole("iterations", iterations, 1, MANY)
        self.warm_iterations = as_whole("warm_iterations", warm_iterations, 1, MANY)
        if grouped_steps is None:
            grouped_steps = math.ceil(self.steps / GROUPED_SHARE)
        self.grouped_steps = as_whole("grouped_steps", grouped_steps, 0, self.steps)
        self.regroup_every = as_whole("regroup_every", regroup_every, 1, MANY)
        self.reset()

    def reset(self) -> None:
        """Forgets everything: the next sample."""
        self._step: int | None = None
        self._evaluation = -1
        self._layers: dict[LayerName, _Layer] = {}

    @property
    def step(self) -> int | None:
        """The step that began last; None before the first."""
        return self._step

    @property
    def layers(self) -> list[LayerName]:
        """Names of the layers seen so far."""
        return list(self._layers)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        tensors = [x for y in self._layers.values() for x in (y.permutation, y.centroids)]
        return sum(x.numel() * x.element_size() for x in tensors if x is not None)

    def begin_step(self, step: int) -> None:
        """Says that an evaluation of the model in this step follows; a sampler of higher order
        says it for each of its evaluations. Steps may be left out, but never go back."""
        step = as_whole("step", step, 0, self.steps - 1)
        if self._step is not None and step < self._step:
            raise ValueError(
                f"step: {step} after {self._step}; expected a step that is not earlier. Call "
                "reset() before another sample."
            )
        self._step = step
        self._evaluation += 1

    def order(self, layer: LayerName, v: torch.Tensor) -> Order:
        """What this call of a layer does; groups v, [heads, rows, channels], if it is time."""
        step, entry = self._use(layer, v)
        if step >= self.grouped_steps:
            return Order(entry.permutation, demean=False)
        if self.is_due(step, entry.grouped_step):
            warm = entry.centroids is not None
            iterations = self.warm_iterations if warm else self.iterations
            entry.permutation, entry.centroids = group(
                v, self.clusters, iterations, entry.centroids
            )
            entry.grouped_step = step
        return Order(entry.permutation, demean=True)

    def is_due(self, step: int, grouped_step: int | None) -> bool:
        """Whether V of a layer is sorted in a step; it was last in `grouped_step`, if at all."""
        if step >= self.grouped_steps:
            return False
        return grouped_step is None or step - grouped_step >= self.regroup_every

    def _use(self, layer: LayerName, v: torch.Tensor) -> tuple[int, _Layer]:
        require_layer_name(layer)
        if self._step is None:
            raise ValueError(
                "state: no step has begun; expected one. Call state.begin_step(step) before each "
                "evaluation of the model."
            )
        entry = self._layers.get(layer) or _Layer(tuple(v.shape), v.device)
        if (entry.shape, entry.device) != (tuple(v.shape), v.device):
            raise ValueError(
                f"layer: {layer!r} of the state has [heads, tokens, channels] "
                f"{list(entry.shape)} on {entry.device}, v has {list(v.shape)} on {v.device}; "
                "expected the same. Use a name for each attention layer, and reset() before "
                "another size of the video."
            )
        if entry.evaluation == self._evaluation:
            raise ValueError(
                f"layer: {layer!r} was used before in this evaluation of step {self._step}; "
                "expected a name for each attention call of the model. Tell apart layers, "
                "conditional and unconditional passes, and experts; and call state.begin_step() "
                "before each evaluation."
            )
        entry.evaluation = self._evaluation
        self._layers[layer] = entry
        return self._step, entry

    def _settings(self) -> dict[str, int]:
        return {
            name: getattr(self, name)
            for name in (
                *("steps", "clusters", "iterations", "warm_iterations"),
                *("grouped_steps", "regroup_every"),
            )
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as torch.save() takes it. Tensors are those of the state, not copies."""
        layers = [{"name": name, **vars(entry)} for name, entry in self._layers.items()]
        for entry in layers:
            entry["device"] = str(entry["device"])
        return {
            "settings": self._settings(),
            "step": self._step,
            "evaluation": self._evaluation,
            "layers": layers,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Goes on from state_dict() of a state with the same settings."""
        found = saved.get("settings") if isinstance(saved, Mapping) else None
        if found != self._settings():
            raise ValueError(
                f"saved: settings {found}; expected {self._settings()}, those of this state. "
                "Make a state with the settings of the saved one."
            )
        layers = {}
        for fields in saved["layers"]:
            fields = dict(fields)
            name, device = fields.pop("name"), torch.device(fields.pop("device"))
            shape = tuple(fields.pop("shape"))
            for tensor in ("permutation", "centroids"):
                if fields[tensor] is not None:
                    fields[tensor] = fields[tensor].to(device)
            layers[name] = _Layer(shape, device, **fields)
        self._step, self._evaluation, self._layers = saved["step"], saved["evaluation"], layers

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self._settings().items())
        return f"VSmoothState({settings}; step {self._step}, {len(self._layers)} layers)"


def require_layer_name(layer: Any) -> None:
    """Refuses what is not an int, a string or a tuple of them."""
    parts = layer if isinstance(layer, tuple) and layer else (layer,)
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, str)):
            raise TypeError(
                f"layer: {shown(layer)}; expected the name of the layer in the state: an int, a "
                'string, or a tuple of them. Pass layer=("cond", 3) for example.'
            )
