# SPDX-License-Identifier: BSD-3-Clause
"""One random call of the soak: what is drawn, and how it runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import soak_judge
import torch

from open_vc_attn import (
    Numerics,
    attention,
    attention_fp8,
    attention_v_repair,
    prepare_fp8,
    prepare_v_repair,
)

HEAD_DIM = 128
MAX_SCORES = 40_000_000  # of a case, for the CPU's sake
SPECIAL_LENGTHS = [1, 2, 3, 7, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4097]
LAYOUTS = [
    "contiguous",
    "heads first",
    "fused projection",
    "padded rows",
    "unaligned rows",
    "stride 0",
]
VALUES = ["plain", "plain", "sharp", "offset", "outlier channels", "tiny", "constant"]
FORMS = ["one call", "prepared, reused", "graph replay"]

Result = tuple[torch.Tensor, torch.Tensor | None]


def draw_values(rng: random.Random, shape: tuple[int, ...]) -> torch.Tensor:
    values = torch.randn(shape)
    kind = rng.choice(VALUES)
    if kind == "sharp":
        values *= 4
    elif kind == "offset":
        values += 3 * torch.randn(shape[-1])
    elif kind == "outlier channels":
        values[..., rng.sample(range(shape[-1]), 3)] *= 20
    elif kind == "tiny":
        values *= 1e-3
    elif kind == "constant":
        values[:] = values[:, :1]
    return values


class Operand:
    """A [B, S, H, 128] tensor in some memory layout, with NaN between its elements."""

    def __init__(
        self, rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype, device: str
    ) -> None:
        self.layout = rng.choice(LAYOUTS)
        self._axis = rng.randrange(3)  # that has stride 0
        batch, length, heads, channels = shape

        def nan(*sizes: int) -> torch.Tensor:
            return torch.full(sizes, float("nan"), device=device, dtype=dtype)

        if self.layout == "heads first":
            own = nan(batch, heads, length + 1, channels)[:, :, :length].transpose(1, 2)
        elif self.layout == "fused projection":
            own = nan(batch, length, 3 * heads, channels)[:, :, heads : 2 * heads]
        elif self.layout == "padded rows":
            own = nan(batch, length + 2, heads, channels + 8)[:, 1 : length + 1, :, :channels]
        elif self.layout == "unaligned rows":
            pitch = channels + 3
            flat = nan(batch * length * heads * pitch + 8)
            strides = (length * heads * pitch, heads * pitch, pitch, 1)
            own = flat.as_strided(shape, strides, rng.randrange(1, 8))
        elif self.layout == "stride 0":
            own = nan(*(1 if axis == self._axis else n for axis, n in enumerate(shape)))
        else:
            own = nan(*shape)
        self._own = own
        self.view = own.expand(shape)

    def fill(self, values: torch.Tensor) -> None:
        self._own.copy_(values)

    def shape(self) -> tuple[int, ...]:
        """Of the elements that are stored."""
        return tuple(self._own.shape)


@dataclass
class Case:
    """What is asked of both backends."""

    queries: int
    keys: int
    batch: int
    heads: int
    dtype: torch.dtype
    causal: bool
    budget: float
    with_lse: bool
    form: str
    scale: float | None
    below_zero: bool  # all scores: padding that counts as a key of zeros takes the whole softmax
    options: dict[str, Any]
    operands: list[Operand] = field(default_factory=list)

    def kinds(self) -> list[str]:
        """The kinds that the summary counts."""
        checks = {
            "bfloat16": self.dtype is torch.bfloat16,
            "float16": self.dtype is torch.float16,
            "batch > 1": self.batch > 1,
            "cross-attention": self.queries != self.keys,
            "causal": self.causal,
            "causal, rows without keys": self.causal and self.queries > self.keys,
            "at most 8 keys": self.keys <= 8,
            "at most 8 queries": self.queries <= 8,
            "repair": self.budget > 0,
            "LSE": self.with_lse,
            "softmax scale": self.scale is not None,
            "scores below zero": self.below_zero,
            "side stream": True,
        }
        layouts = [f"layout {name}" for name in sorted({x.layout for x in self.operands})]
        return [self.form, *(name for name, applies in checks.items() if applies), *layouts]

    def describe(self) -> str:
        layouts = "/".join(operand.layout for operand in self.operands)
        return (
            f"B{self.batch} H{self.heads} Sq{self.queries} Skv{self.keys} {self.dtype} "
            f"causal={self.causal} budget={self.budget} lse={self.with_lse} scale={self.scale} "
            f"below_zero={self.below_zero} {self.form}; {layouts}; {self.options}"
        )

    def fill(self, rng: random.Random) -> None:
        """New elements in the same memory."""
        for position, operand in enumerate(self.operands):
            values = draw_values(rng, operand.shape())
            if self.below_zero and position < 2:
                values = values.abs() if position == 0 else -values.abs()
            operand.fill(values)

    def tensors(self) -> list[torch.Tensor]:
        return [operand.view for operand in self.operands]


def draw_lengths(rng: random.Random) -> tuple[int, int, int, int]:
    """Batch, heads, queries and keys."""
    while True:
        batch, heads = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3, 7])
        queries, keys = (
            rng.choice(SPECIAL_LENGTHS) if rng.random() < 0.5 else int(2 ** rng.uniform(0, 14))
            for _ in range(2)
        )
        if rng.random() < 0.3:
            keys = queries
        if batch * heads * queries * keys <= MAX_SCORES:
            return batch, heads, queries, keys


def draw_case(rng: random.Random, device: str) -> Case:
    batch, heads, queries, keys = draw_lengths(rng)
    dtype = rng.choice([torch.bfloat16, torch.float16])
    causal = rng.random() < 0.25
    numerics = Numerics(
        smooth_keys=rng.random() < 0.8,
        max_extra_steps=rng.choice([0, 1, 2, 4]),
        rotation=rng.choice(["never", "automatic", "always"]),
        value_axes=rng.choice(["never", "automatic", "always"]),
        smooth_values=rng.random() < 0.8,
        value_scale=rng.choice(["per_channel", "per_channel", "per_head"]),
    )
    case = Case(
        queries=queries,
        keys=keys,
        batch=batch,
        heads=heads,
        dtype=dtype,
        causal=causal,
        budget=0.0 if causal else rng.choice([0.0, 0.0, 0.005, 0.1]),
        with_lse=rng.random() < 0.6,
        form=rng.choice(FORMS if device == "cuda" else FORMS[:2]),
        scale=rng.choice([None, None, 0.03, 0.15]),
        below_zero=rng.random() < 0.15,
        options={"numerics": numerics, "key_order": rng.choice(["mid_window", "descending"])},
    )
    for length in (queries, keys, keys):
        case.operands.append(Operand(rng, (batch, length, heads, HEAD_DIM), dtype, device))
    return case


def call(case: Case, tensors: list[torch.Tensor], prepared: Any = None) -> Result:
    """The call of a case, in one step or on inputs that prepare() has quantised."""
    if prepared is None and (case.budget > 0 or case.form == "prepared, reused"):
        prepared = prepare(case, tensors)
    if prepared is not None:
        function = attention_v_repair if case.budget > 0 else attention_fp8
        result = function(prepared, return_lse=case.with_lse)
    else:
        result = attention(
            *tensors,
            causal=case.causal,
            softmax_scale=case.scale,
            return_lse=case.with_lse,
            **case.options,
        )
    return result if case.with_lse else (result, None)


def prepare(case: Case, tensors: list[torch.Tensor]) -> Any:
    options = dict(softmax_scale=case.scale, with_lse=case.with_lse, **case.options)
    if case.budget > 0:
        return prepare_v_repair(*tensors, budget=case.budget, **options)
    return prepare_fp8(*tensors, causal=case.causal, **options)


def differ(a: Result, b: Result) -> bool:
    return any(x is not None and not torch.equal(x, y) for x, y in zip(a, b, strict=True))


def on_side_stream(function: Callable[[], Result], device: str) -> Result:
    if device == "cpu":
        return function()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = function()
    torch.cuda.current_stream().wait_stream(stream)
    for tensor in result:
        if tensor is not None:
            tensor.record_stream(torch.cuda.current_stream())
    return result


def captured(function: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
    """What replays a call that was captured into a graph, and where its results are."""
    on_side_stream(function, "cuda")  # first use may allocate what a capture must not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph.replay, result


def judge_result(case: Case, result: Result) -> soak_judge.Verdict:
    """Against the exact result and the CPU backend, for the elements that the operands have now."""
    tensors = case.tensors()
    numerics: Numerics = case.options["numerics"]
    exact = soak_judge.exact_attention(*tensors, case.causal, case.scale, numerics.smooth_keys)
    cpu = [None if x is None else x.to(result[0].device) for x in on_cpu(case, tensors)]
    assert cpu[0] is not None
    return soak_judge.judge(*result, *cpu, exact)


def on_cpu(case: Case, tensors: list[torch.Tensor]) -> Result:
    return call(case, [x.cpu() for x in tensors])


def run_case(rng: random.Random, case: Case, device: str) -> soak_judge.Verdict:
    """Runs a case as often as its form asks for; its first fault, or the last verdict."""
    case.fill(rng)
    tensors = case.tensors()
    if case.form == "graph replay":
        replay, result = captured(lambda: call(case, tensors))
        verdict = soak_judge.Verdict()
        for _ in range(2):
            case.fill(rng)
            replay()
            if differ(result, call(case, tensors)):
                return soak_judge.Verdict("a replay differs from the call")
            verdict = judge_result(case, result)
            if verdict.fault:
                break
        return verdict
    prepared = prepare(case, tensors) if case.form == "prepared, reused" else None
    result = call(case, tensors, prepared)
    for _ in range(2):
        if differ(result, on_side_stream(lambda: call(case, tensors, prepared), device)):
            return soak_judge.Verdict("two runs differ")
    if prepared is not None and differ(result, call(case, tensors)):
        return soak_judge.Verdict("inputs prepared twice give other results")
    return judge_result(case, result)
