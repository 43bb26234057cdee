# SPDX-License-Identifier: BSD-3-Clause
"""The attention backend of vLLM-Omni. Imports vLLM-Omni and torch."""

from __future__ import annotations

import dataclasses
from pkgutil import resolve_name
from typing import Any

import torch
from vllm_omni.diffusion.attention.backends.abstract import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadata,
)
from vllm_omni.diffusion.attention.backends.sdpa import SDPABackend
from vllm_omni.diffusion.forward_context import (
    get_forward_context,
    is_forward_context_available,
)
from vllm_omni.platforms import current_omni_platform

from .._policy import Step
from ._default import default_layer, default_switch
from ._dispatch import dispatch
from ._enum import NAME
from ._native import sdpa
from ._readiness import require_device

_VALID_KEYS = "valid_kv_length"


class OpenVCBackend(AttentionBackend):
    accept_output_buffer = True
    supports_prefix_kv_slicing = True

    @classmethod
    def validate_available(cls) -> None:
        """Raises NotImplementedError if no kernel runs on the GPU here."""
        require_device("cuda" if torch.cuda.is_available() else "cpu")

    @classmethod
    def supports_attention_mask(cls, attention_spec: object | None = None) -> bool:
        return True

    @staticmethod
    def get_name() -> str:
        return NAME

    @staticmethod
    def get_impl_cls() -> type[AttentionImpl]:
        return OpenVCImpl

    @staticmethod
    def get_metadata_cls() -> type[AttentionMetadata]:
        return AttentionMetadata

    @staticmethod
    def get_builder_cls() -> None:
        return None

    @staticmethod
    def get_supported_head_sizes() -> list[int]:
        return []  # any: another backend serves those that the kernels do not


class OpenVCImpl(AttentionImpl):
    """FP8 where table and policy allow it, else the backend that the platform chooses by default;
    for masks that this one does not take, torch's attention."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        softmax_scale: float,
        causal: bool = False,
        num_kv_heads: int | None = None,
        prefix: str = "",
        qkv_layout: str | None = None,
        backend_kwargs: dict[str, Any] | None = None,
        **extra_impl_args: Any,
    ) -> None:
        if backend_kwargs:
            raise ValueError(
                f"{NAME}: options {', '.join(sorted(backend_kwargs))} of the attention "
                "configuration; expected none. Set OPEN_VC_ATTN_NUMERICS in the environment."
            )
        default_switch().follow_steps(_step)
        self.causal, self.scale = causal, softmax_scale
        arguments = {
            "num_heads": num_heads,
            "head_size": head_size,
            "softmax_scale": softmax_scale,
            "causal": causal,
            "num_kv_heads": num_kv_heads,
            "prefix": prefix,
            "qkv_layout": qkv_layout,
        }
        path = current_omni_platform.get_diffusion_attn_backend_cls(None, head_size)
        backend = resolve_name(path)
        self.dense = backend.get_impl_cls()(**arguments, **extra_impl_args)
        self.masked = (
            self.dense
            if backend.supports_attention_mask()
            else SDPABackend.get_impl_cls()(**arguments)
        )
        self.layer = default_layer(prefix, str(extra_impl_args.get("role", "")))
        self.layer.native = self._native

    def forward(self, query: Any, key: Any, value: Any, attn_metadata: Any = None) -> Any:
        cross = query.shape[1] != key.shape[1]
        key, value, attn_metadata = _without_padding(key, value, attn_metadata)
        mask = getattr(attn_metadata, "attn_mask", None)
        dense = self.dense if mask is None else self.masked
        spans = getattr(attn_metadata, "full_attn_spans", None) is not None
        return dispatch(
            self.layer,
            query,
            key,
            value,
            native=lambda: dense.forward(query, key, value, attn_metadata),
            mask=_broadcast(mask),
            causal=self.causal,
            scale=self.scale,
            cross=cross,
            refused="spans of full attention" if spans else "",
        )

    forward_cuda = forward

    def _native(
        self, q: Any, k: Any, v: Any, *, mask: Any = None, return_lse: bool = False, **_: Any
    ) -> Any:
        """A call of a compiled function; the arguments left out are those of this object."""
        if mask is None and not return_lse:
            return self.dense.forward(q, k, v, None)
        return sdpa(q, k, v, mask=mask, causal=self.causal, scale=self.scale, return_lse=return_lse)


def _without_padding(key: Any, value: Any, metadata: Any) -> tuple[Any, Any, Any]:
    """Keys and values without those behind the length that a model gives on the host."""
    extra = getattr(metadata, "extra", None) or {}
    valid = extra.get(_VALID_KEYS)
    if valid is None:
        return key, value, metadata
    if isinstance(valid, bool) or not isinstance(valid, int) or not 0 < valid <= key.shape[1]:
        raise ValueError(
            f"{_VALID_KEYS}: {valid!r} of {key.shape[1]} keys; expected a whole number from 1 to "
            "that. It comes from the model: report it."
        )
    mask = metadata.attn_mask
    if mask is not None and mask.shape[-1] == key.shape[1]:
        mask = mask[..., :valid]
    rest = {name: x for name, x in extra.items() if name != _VALID_KEYS}
    metadata = dataclasses.replace(metadata, attn_mask=mask, extra=rest)
    return key[:, :valid], value[:, :valid], metadata


def _broadcast(mask: Any) -> Any:
    """[B, Skv] hides keys there, whatever its element type."""
    return mask if mask is None or mask.dim() != 2 else mask.bool()[:, None, None, :]


def _step() -> Step | None:
    if not is_forward_context_available():
        return None
    context = get_forward_context()
    index, count = context.denoise_step_idx, context.total_denoise_steps
    return None if index is None or not count else Step(min(int(index), count - 1), int(count))
