# SPDX-License-Identifier: BSD-3-Clause
"""Runs the model with exact attention and with other numerics, and compares what it computes.

Definitions are in docs/quality.md.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median

import torch

from .images import psnr, ssim, to_bytes
from .model import LayerAttention, VideoTransformer
from .numerics import EXACT, NamedNumerics, parse
from .simulated import Attention
from .vc_numerics import StepAttention

NOISE_LEVELS = (0.9, 0.6, 0.3)
FIRST_NOISE = 0.9
"""Sampling starts at this noise level."""
VELOCITY_SEED = 0
FIRST_SEED = 1

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    steps: int = 18
    """Euler steps from noise 0.9 to 0."""
    seeds: int = 1
    """Samples of the noise."""
    dtype: str = "float32"
    """Of the model outside of attention: float32, or bfloat16 through autocast."""


@dataclass
class Outcome:
    """What one numerics does to the model. Errors are in percent."""

    numerics: NamedNumerics
    velocity_errors: list[float] = field(default_factory=list)
    """One for each of NOISE_LEVELS."""
    psnr_of_seeds: list[float] = field(default_factory=list)
    ssim_of_seeds: list[float] = field(default_factory=list)
    latent_errors: list[float] = field(default_factory=list)
    """After each step, RMS of the seeds."""
    head_errors: list[list[float]] = field(default_factory=list)
    """[layer][head], RMS of the noise levels; inputs are those of the exact model."""
    layer_errors: list[float] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    frame: torch.Tensor | None = None
    """The middle frame of the first seed's sample, uint8 [H, W, 3]."""

    @property
    def velocity_error(self) -> float:
        return rms(self.velocity_errors)

    @property
    def psnr(self) -> float:
        return sum(self.psnr_of_seeds) / len(self.psnr_of_seeds)

    @property
    def ssim(self) -> float:
        return sum(self.ssim_of_seeds) / len(self.ssim_of_seeds)

    @property
    def milliseconds_per_call(self) -> float:
        return 1e3 * median(self.call_seconds)


def rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in values) / len(values))


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """|found - expected| / |expected| in percent, over all elements."""
    exact = expected.double()
    return 100 * float((found.double() - exact).norm() / exact.norm())


class Study:
    """Exact runs of one clip, with which numerics are compared."""

    def __init__(
        self,
        model: VideoTransformer,
        clip: torch.Tensor,
        settings: Settings,
        progress: Progress = lambda _: None,
    ) -> None:
        self._model, self.settings, self._progress = model, settings, progress
        self.device = model.pix_mean.device
        self._seeds = range(FIRST_SEED, FIRST_SEED + settings.seeds)
        with torch.no_grad():
            self._clean = model.encode(clip.to(self.device)[None].float())
        self.grid = tuple(self._clean.shape[1:4])
        self.tokens = math.prod(self.grid)
        self.clip_frame = to_bytes(clip[len(clip) // 2])
        numerics = parse(EXACT)
        self._exact = exact = numerics.attention
        self._truth = []
        for sigma in NOISE_LEVELS:
            progress(f"exact attention: noise level {sigma:g}")
            self._truth.append(self.velocity(_every_layer(exact), self._noisy(sigma), sigma))
        self._samples = [
            self._sample(numerics.steps(settings.steps), seed, "exact attention")
            for seed in self._seeds
        ]
        self._pixels = [self._decode(sample[-1]) for sample in self._samples]
        self.exact_frame = self._middle_frame(self._pixels[0])

    def measure(self, names: Sequence[str]) -> list[Outcome]:
        """One outcome for each name, in their order.

        Raises:
            ValueError: a name is none of numerics.choices().
        """
        outcomes = [Outcome(parse(name)) for name in names]
        self._measure_heads(outcomes)
        for outcome in outcomes:
            self._measure(outcome)
        return outcomes

    def velocity(self, attention: LayerAttention, z: torch.Tensor, sigma: float) -> torch.Tensor:
        """The model's output at latents z."""
        with torch.no_grad(), self._autocast():
            return self._model(z, sigma, attention)

    def capture(self, sigma: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Q, K and V of all heads of all layers at a noise level, [1, S, layers x heads, 128]."""
        heads: list[tuple[torch.Tensor, ...]] = []

        def record(_: int, *qkv: torch.Tensor) -> torch.Tensor:
            heads.append(qkv)
            return self._exact(*qkv)

        self.velocity(record, self._noisy(sigma), sigma)
        q, k, v = (torch.cat(parts, 2).contiguous() for parts in zip(*heads, strict=True))
        return q, k, v

    def _measure(self, outcome: Outcome) -> None:
        name, begin = outcome.numerics.name, time.perf_counter()
        numerics = outcome.numerics
        attend = _every_layer(numerics.attention)
        for sigma, truth in zip(NOISE_LEVELS, self._truth, strict=True):
            self._progress(f"{name}: noise level {sigma:g}")
            found = self.velocity(self._timed(outcome, attend), self._noisy(sigma), sigma)
            outcome.velocity_errors.append(relative_error(found, truth))
        errors = []
        for seed, truths, pixels in zip(self._seeds, self._samples, self._pixels, strict=True):
            steps = numerics.steps(self.settings.steps)
            sample = self._sample(steps, seed, name, lambda x: self._timed(outcome, x))
            errors.append([relative_error(a, b) for a, b in zip(sample, truths, strict=True)])
            decoded = self._decode(sample[-1])
            outcome.psnr_of_seeds.append(psnr(decoded, pixels))
            outcome.ssim_of_seeds.append(ssim(decoded, pixels))
            if outcome.frame is None:
                outcome.frame = self._middle_frame(decoded)
        outcome.latent_errors = [rms(step) for step in zip(*errors, strict=True)]
        outcome.seconds = time.perf_counter() - begin

    def _measure_heads(self, outcomes: Sequence[Outcome]) -> None:
        """Errors of every layer and head on the exact model's inputs."""
        layers, heads = self._model.layers, self._model.heads
        whole = [[[] for _ in range(layers)] for _ in outcomes]
        single = [[[[] for _ in range(heads)] for _ in range(layers)] for _ in outcomes]

        def compare(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
            truth = self._exact(*qkv)
            for i, outcome in enumerate(outcomes):
                found = outcome.numerics.attention(*qkv)
                whole[i][layer].append(relative_error(found, truth))
                for head in range(heads):
                    error = relative_error(found[:, :, head], truth[:, :, head])
                    single[i][layer][head].append(error)
            return truth

        for sigma in NOISE_LEVELS:
            self._progress(f"single heads: noise level {sigma:g}")
            self.velocity(compare, self._noisy(sigma), sigma)
        for i, outcome in enumerate(outcomes):
            outcome.layer_errors = [rms(errors) for errors in whole[i]]
            outcome.head_errors = [[rms(errors) for errors in layer] for layer in single[i]]

    def _sample(
        self,
        attention_of_step: StepAttention,
        seed: int,
        name: str,
        watched: Callable[[LayerAttention], LayerAttention] = lambda attend: attend,
    ) -> list[torch.Tensor]:
        """The latents after each Euler step."""
        z, found = self._noisy(FIRST_NOISE, seed), []
        levels = torch.linspace(FIRST_NOISE, 0, self.settings.steps + 1).tolist()
        for step, (here, there) in enumerate(itertools.pairwise(levels), 1):
            self._progress(
                f"{name}: seed {seed} of {self.settings.seeds}, step {step} of "
                f"{self.settings.steps}"
            )
            attend = watched(attention_of_step(step - 1))
            z = z + (there - here) * self.velocity(attend, z, here)
            found.append(z)
        return found

    def _noisy(self, sigma: float, seed: int = VELOCITY_SEED) -> torch.Tensor:
        # From the CPU, so that every device sees the same noise.
        noise = torch.randn(self._clean.shape, generator=torch.Generator().manual_seed(seed))
        return (1 - sigma) * self._clean + sigma * noise.to(self.device)

    def _decode(self, latents: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self._model.decode(latents)[0]

    def _middle_frame(self, pixels: torch.Tensor) -> torch.Tensor:
        return to_bytes(pixels[len(pixels) // 2])

    def _timed(self, outcome: Outcome, attend: LayerAttention) -> LayerAttention:
        def timed(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
            self._wait()
            begin = time.perf_counter()
            out = attend(layer, *qkv)
            self._wait()
            outcome.call_seconds.append(time.perf_counter() - begin)
            return out

        return timed

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _autocast(self) -> AbstractContextManager[None]:
        if self.settings.dtype == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.settings.dtype))


def _every_layer(attend: Attention) -> LayerAttention:
    return lambda _, q, k, v: attend(q, k, v)
