# SPDX-License-Identifier: BSD-3-Clause
"""Numerics of attention by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import _numerics
from .._attention import attention
from . import simulated, vc_numerics
from .simulated import Attention
from .vc_numerics import StepAttention

LIBRARY = "library"
EXACT = "exact"

SIMULATED = {
    EXACT: "exact exact exact",
    "reference": "blk ref head",
    "fa3-like": "blk rne head",
    "sage2-like": "int8 rne pc",
}
"""Published numerics, in the words of simulated.py."""

NAMES = ("bf16", LIBRARY, *SIMULATED, vc_numerics.NAME)
DEFAULT = (LIBRARY, "sage2-like", "fa3-like", "reference")

TABLE = (
    *("bf16", LIBRARY, "sage2-like", "fa3-like", "reference"),
    *("exact exp exact", "exact tail exact", "exact rne exact", "exact anchor128 exact"),
    *("exact frac128 exact", "exact rloc128 exact", "exact loc128 exact"),
    *("n0 exact exact", "n0had exact exact", "n1 exact exact", "n2 exact exact"),
    *("n1pca exact exact", "n2pca exact exact", "n1bal exact exact", "n2bal exact exact"),
    *("int8 exact exact", "int8hadblk exact exact"),
    *("exact exact pc", "exact exact c1", "exact exact km", "exact exact c1r16"),
    *("exact exact c1m7", "exact exact c1m15", "exact exact c1m32"),
    *(vc_numerics.NAME, "vc-attention:v_smooth=false", "vc-attention:probabilities=exponential"),
    "vc-attention:v_smooth=false,probabilities=exponential",
    *("n1pca anchor128 c1m7", "n1pca anchor128 c1m32"),
    *("n2pca anchor128 c1m15", "n2pca anchor128 c1m32"),
)
"""The rows of docs/quality.md; `table` on the command line."""

# Arguments of attention() that choose numerics beside the numeric options, as the library has them.
_ARGUMENTS = ("budget",)


@dataclass(frozen=True)
class NamedNumerics:
    name: str
    description: str
    attention: Attention
    sampler: Callable[[int], StepAttention] | None = None
    """Of numerics that keep something from step to step: from the number of steps to the attention
    of each step. The others use `attention` in every step."""

    def steps(self, steps: int) -> StepAttention:
        """The attention of every layer in each of so many steps."""
        if self.sampler is not None:
            return self.sampler(steps)
        return lambda _: lambda _, q, k, v: self.attention(q, k, v)


def choices() -> str:
    """What parse() takes, in words."""
    return (
        f"{LIBRARY}[:option=value,...], bf16, {', '.join(SIMULATED)}, "
        f"{vc_numerics.NAME}[:option=value,...], or {simulated.GRAMMAR}"
    )


def parse(name: str) -> NamedNumerics:
    """The numerics of a name.

    Raises:
        ValueError: no such numerics, with the choices; or an option that the library refuses.
    """
    kind, colon, options = name.partition(":")
    if kind == LIBRARY:
        arguments = library_arguments(options) if colon else {}
        return NamedNumerics(name, "this library", partial(_library, **arguments))
    if kind == vc_numerics.NAME:
        attend, sampler = vc_numerics.parse_vc(options if colon else None)
        return NamedNumerics(name, "VC-Attention, simulated", attend, sampler)
    if name == "bf16":
        return NamedNumerics(name, "torch's attention in bfloat16", _sdpa)
    words = SIMULATED.get(name, name)
    if len(words.split()) != simulated.WORDS:
        raise ValueError(f"numerics: {name!r}; expected {choices()}")
    try:
        attend = simulated.simulated(words)
    except ValueError as error:
        raise ValueError(f"numerics: {name!r}: {error}") from None
    return NamedNumerics(name, f"simulated: {words}", attend)


def library_arguments(text: str) -> dict[str, Any]:
    """Keyword arguments of attention() from "option=value,...".

    Raises:
        ValueError: an unknown option, or a value that is not allowed.
    """
    options = {option.name: option for option in _numerics.OPTIONS}
    arguments = [name for name in _ARGUMENTS if name in inspect.signature(attention).parameters]
    found: dict[str, Any] = {}
    numerics: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in (*options, *arguments) or name in {**numerics, **found}:
            raise ValueError(
                f"numerics: {part!r} in '{LIBRARY}:{text}'; expected option=value, each option "
                f"once, of {', '.join([*options, *arguments])}"
            )
        if name in arguments:
            found[name] = _number_or_text(value)
        else:
            numerics[name] = _checked(options[name], value)
    return {**found, "numerics": numerics} if numerics else found


def _checked(option: _numerics.NumericOption, text: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        "bool": lambda word: {"true": True, "false": False}[word.lower()],
        "int": int,
        "float": float,
        "str": str,
    }
    try:
        return option.checked(readers[option.type_name](text))
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"numerics.{option.name}: {text!r}; expected {option.expected}. "
            f"The default is {option.default!r}."
        ) from None


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return attention(q, k, v, **arguments)


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
