# SPDX-License-Identifier: BSD-3-Clause
"""The attention backend of SGLang. Imports SGLang and torch.

Masks never reach a backend of SGLang: its layers serve masked calls themselves.
"""

from __future__ import annotations

import inspect
from pkgutil import resolve_name
from typing import Any

import torch
from sglang.multimodal_gen.runtime.distributed import parallel_state
from sglang.multimodal_gen.runtime.layers.attention.backends.attention_backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
    trailing_padding_used_len,
)
from sglang.multimodal_gen.runtime.layers.attention.selector import (
    get_component_attn_backend_name,
)
from sglang.multimodal_gen.runtime.managers.forward_context import get_forward_context_or_none
from sglang.multimodal_gen.runtime.platforms import AttentionBackendEnum, current_platform
from sglang.multimodal_gen.runtime.server_args import get_global_server_args
from sglang.multimodal_gen.runtime.utils.precision import get_compute_dtype

from .._policy import Step
from ._default import configure, default_layer, default_switch
from ._dispatch import dispatch
from ._enum import NAME, VALUE
from ._native import sdpa
from ._packed import attend_packed

_CONFIG = "attention_backend_config"
_KEYS = ("policy", "numerics")
_SUFFIX = ".impl"  # of the names that layers give their implementations


class OpenVCBackend(AttentionBackend):
    accept_output_buffer = True

    @staticmethod
    def get_enum() -> Any:
        return AttentionBackendEnum[NAME]

    @staticmethod
    def get_impl_cls() -> type[AttentionImpl]:
        return OpenVCImpl

    @staticmethod
    def get_metadata_cls() -> type[AttentionMetadata]:
        return AttentionMetadata

    @staticmethod
    def get_builder_cls() -> Any:
        return None

    @classmethod
    def supports_ring_rotation(cls) -> bool:
        return True


class OpenVCImpl(AttentionImpl):
    """FP8 where table and policy allow it, else the backend that SGLang chooses by default here."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        softmax_scale: float,
        causal: bool = False,
        num_kv_heads: int | None = None,
        prefix: str = "",
        **extra_impl_args: Any,
    ) -> None:
        _configure()
        self.causal, self.scale = causal, softmax_scale
        self.dropout = extra_impl_args.get("dropout_p", 0.0)
        self.cross = bool(extra_impl_args.get("is_cross_attention", False))
        self.padded = bool(extra_impl_args.get("packed_trailing_padding", False))
        default = current_platform.get_attn_backend_cls_str(None, head_size, get_compute_dtype())
        self.dense = resolve_name(default).get_impl_cls()(
            num_heads=num_heads,
            head_size=head_size,
            softmax_scale=softmax_scale,
            causal=causal,
            num_kv_heads=num_kv_heads,
            prefix=prefix,
            **extra_impl_args,
        )
        parameters = inspect.signature(self.dense.forward).parameters.values()
        self.dense_has_lse = any(
            x.name == "return_softmax_lse" or x.kind is x.VAR_KEYWORD for x in parameters
        )
        self.layer = default_layer(
            prefix.removesuffix(_SUFFIX), get_component_attn_backend_name() or ""
        )
        self.layer.native = self._native

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_metadata: Any = None,
        *,
        return_softmax_lse: bool = False,
    ) -> Any:
        def native() -> Any:
            if not return_softmax_lse:
                return self.dense.forward(query, key, value, attn_metadata)
            if not self.dense_has_lse:
                return self._sdpa(query, key, value, True)
            return self.dense.forward(query, key, value, attn_metadata, return_softmax_lse=True)

        return dispatch(
            self.layer,
            query,
            key,
            value,
            native=native,
            dropout=self.dropout,
            causal=self.causal,
            scale=self.scale,
            return_lse=return_softmax_lse,
            cross=self.cross,
            bottom_right=True,
            shards=_ring_size() if return_softmax_lse else 1,
        )

    def forward_varlen(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        cu_seqlens: Any,
        max_seqlen: int,
        cu_seqlens_host: tuple[int, ...] | None = None,
    ) -> Any:
        def native() -> Any:
            return self.dense.forward_varlen(
                query,
                key,
                value,
                cu_seqlens=cu_seqlens,
                max_seqlen=max_seqlen,
                cu_seqlens_host=cu_seqlens_host,
            )

        used = None
        if self.padded and cu_seqlens_host is not None:
            used = trailing_padding_used_len(query.shape[0], max_seqlen, cu_seqlens_host)
        boundaries = cu_seqlens if used is None else [0, used]
        return attend_packed(
            self.layer,
            query,
            key,
            value,
            boundaries=(boundaries, boundaries),
            longest=(max_seqlen, max_seqlen),
            causal=self.causal,
            scale=self.scale,
            dropout=self.dropout,
            native=native,
        )

    def forward_ring_kv_chunk(self, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
        def native() -> Any:
            try:
                out, lse = self.dense.forward_ring_kv_chunk(query, key, value)
            except NotImplementedError:
                return self._sdpa(query[None], key[None], value[None], True)
            return out[None], lse[None]

        out, lse = dispatch(
            self.layer,
            query[None],
            key[None],
            value[None],
            native=native,
            dropout=self.dropout,
            scale=self.scale,
            return_lse=True,
            cross=self.cross,
            shards=_ring_size(),
        )
        return out[0], lse[0]

    def _sdpa(self, q: Any, k: Any, v: Any, return_lse: bool) -> Any:
        return sdpa(q, k, v, causal=self.causal, scale=self.scale, return_lse=return_lse)

    def _native(self, q: Any, k: Any, v: Any, *, return_lse: bool = False, **_: Any) -> Any:
        """A call of a compiled function; the arguments are those of this object."""
        return self._sdpa(q, k, v, True) if return_lse else self.dense.forward(q, k, v, None)


def _configure() -> None:
    """Policy, options and steps of the default switch, as the server was started."""
    default_switch().follow_steps(_step)
    config = (get_global_server_args().attention_backend_config or {}).get(VALUE)
    if config is None:
        return
    unknown = sorted(set(config) - set(_KEYS))
    if unknown:
        raise ValueError(
            f"{_CONFIG}: {VALUE}: {', '.join(unknown)}; expected {' and '.join(_KEYS)}. Remove it."
        )
    configure(config.get("policy"), config.get("numerics"), f"{_CONFIG}: {VALUE}")


def _step() -> Step | None:
    context = get_forward_context_or_none()
    index = getattr(context, "current_timestep", None)
    batch = getattr(context, "forward_batch", None)
    timesteps = getattr(batch, "timesteps", None)
    count = getattr(batch, "num_inference_steps", None) if timesteps is None else len(timesteps)
    if isinstance(index, bool) or not isinstance(index, int) or not count:
        return None
    return Step(min(index, count - 1), count)


@torch.compiler.assume_constant_result
def _ring_size() -> int:
    return int(parallel_state.get_ring_parallel_world_size())
