# SPDX-License-Identifier: BSD-3-Clause
"""The baseline VC-Attention as numerics of a study, with the state that a sampler keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..baselines import VSmoothState, vc_attention
from .model import LayerAttention
from .simulated import Attention

NAME = "vc-attention"
_SWITCHES = {"true": True, "false": False}
_OF_A_CALL: dict[str, Callable[[str], Any]] = {
    "qk_format": str,
    "probabilities": str,
    "v_smooth": lambda text: _SWITCHES[text.lower()],
}
_OF_A_GROUPING: dict[str, Callable[[str], Any]] = {"clusters": int, "iterations": int}
_OF_A_STATE: dict[str, Callable[[str], Any]] = {
    "warm_iterations": int,
    "grouped_steps": int,
    "regroup_every": int,
}
OPTIONS = (*_OF_A_CALL, *_OF_A_GROUPING, *_OF_A_STATE)

_Result = TypeVar("_Result")
StepAttention = Callable[[int], LayerAttention]
"""The attention of every layer in a step of a sampler, from 0 on."""


def parse_vc(text: str | None) -> tuple[Attention, Callable[[int], StepAttention] | None]:
    """(attention of single calls, attention over the steps of a sampler from their number on) of
    "option=value,...", None for the defaults; single calls group, as the first steps do. Without V-Smooth there is no
    state.

    Raises:
        ValueError: an unknown option, or a value that is not allowed.
    """
    call, grouping, schedule = _read(text)
    if call.get("v_smooth") is False:
        if grouping or schedule:
            name = next(iter({**grouping, **schedule}))
            raise ValueError(
                f"numerics: {name} with v_smooth=false; expected one of them. Leave {name} out."
            )
        return _checked(lambda q, k, v: vc_attention(q, k, v, **call)), None

    def sampler(steps: int) -> StepAttention:
        state = _naming_numerics(lambda: VSmoothState(steps, **grouping, **schedule))

        def step_attention(step: int) -> LayerAttention:
            state.begin_step(step)
            return lambda layer, q, k, v: vc_attention(q, k, v, state=state, layer=layer, **call)

        return step_attention

    sampler(max(1, schedule.get("grouped_steps", 1)))
    return _checked(lambda q, k, v: vc_attention(q, k, v, **call, **grouping)), sampler


def _read(text: str | None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of a call, of a grouping, of a state."""
    groups = (_OF_A_CALL, _OF_A_GROUPING, _OF_A_STATE)
    found: tuple[dict[str, Any], ...] = ({}, {}, {})
    for part in () if text is None else text.split(","):
        name, _, value = part.partition("=")
        for readers, options in zip(groups, found, strict=True):
            if name in readers and name not in options:
                try:
                    options[name] = readers[name](value)
                except (KeyError, ValueError):
                    expected = "true or false" if name == "v_smooth" else "a whole number"
                    raise ValueError(
                        f"numerics: {name}: {value!r}; expected {expected}. Write {name}=VALUE."
                    ) from None
                break
        else:
            raise ValueError(
                f"numerics: {part!r} in '{NAME}:{text}'; expected option=value, each option once, "
                f"of {', '.join(OPTIONS)}"
            )
    return found[0], found[1], found[2]


def _checked(attend: Attention) -> Attention:
    """The same, after a call that refuses wrong options before a study begins."""
    token = torch.zeros(1, 1, 1, 128)
    _naming_numerics(lambda: attend(token, token, token))
    return attend


def _naming_numerics(call: Callable[[], _Result]) -> _Result:
    try:
        return call()
    except ValueError as error:
        raise ValueError(f"numerics: {error}") from None
