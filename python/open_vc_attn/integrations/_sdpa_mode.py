# SPDX-License-Identifier: BSD-3-Clause
"""The torch function mode of switched modules. Imports torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from .._sdpa_hook import SdpaMode
from ._dispatch import dispatch
from ._modules import running_layer

_HEADS_FIRST = 4  # axes of [B, H, S, D]


class CountingMode(SdpaMode):
    """Counts attention calls within a forward pass, as captures and recipes do."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = threading.local()

    def start(self) -> None:
        """A forward pass begins."""
        if not torch.compiler.is_compiling():
            self._calls.number, self._calls.paused = 0, False

    def next_number(self) -> int | None:
        """The number of a call; None in compiled functions, which do not count."""
        if torch.compiler.is_compiling():
            return None
        number = getattr(self._calls, "number", 0)
        if not getattr(self._calls, "paused", False):
            self._calls.number = number + 1
        return number

    def call_uncounted(self, function: Callable[[], Any]) -> Any:
        """Calls what serves a call that has its number already."""
        if torch.compiler.is_compiling():
            return function()
        self._calls.paused = True
        try:
            return function()
        finally:
            self._calls.paused = False

    def attend(self, *args: Any, **kwargs: Any) -> Any:
        self.next_number()
        return scaled_dot_product_attention(*args, **kwargs)


class SwitchMode(CountingMode):
    """Hands attention calls of the running layer to its switch."""

    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        number = self.next_number()
        arguments = {"scale": scale, **({"enable_gqa": True} if enable_gqa else {})}

        def native() -> Any:
            return scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, **arguments
            )

        axes = query.dim()
        if not (axes == key.dim() == value.dim() and axes in (_HEADS_FIRST - 1, _HEADS_FIRST)):
            return dispatch(running_layer(), query, key, value, native=native)
        without_batch = axes == _HEADS_FIRST - 1

        def tokens_first(x: Any) -> Any:
            return (x.unsqueeze(0) if without_batch else x).transpose(1, 2)

        out = dispatch(
            running_layer(),
            *map(tokens_first, (query, key, value)),
            native=lambda: tokens_first(native()),
            mask=attn_mask,
            dropout=dropout_p,
            causal=is_causal,
            scale=scale,
            grouped=enable_gqa,
            ordinal=number,
        ).transpose(1, 2)
        return out.squeeze(0) if without_batch else out
