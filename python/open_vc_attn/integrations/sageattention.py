# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for the package sageattention: programs that can use it use this library instead.

install() makes ``import sageattention`` find it; ``python -m open_vc_attn.run --as sageattention``
does that for a whole program and its child processes. Calls that the kernels do not take, or that
the policy keeps, are computed by torch's attention in their own type. Policy and numeric options
come from the environment (integrations/_default.py), or from the switch of the running model.

These functions differ from sageattention's in one way: an argument that they do not know is an
error, and `attn_mask` is honoured.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from ._framework import Framework

FRAMEWORK = Framework(
    title="programs that import sageattention",
    module="sageattention",
    distribution="sageattention",
    oldest="",
    switch="python -m open_vc_attn.run --as sageattention SCRIPT",
)

FOLDER = str(Path(__file__).parent / "stand_ins")
"""Holds a package `sageattention`."""
_PACKAGE = "sageattention"
_LAYOUTS = ("HND", "NHD")


def sageattn(
    q: Any,
    k: Any,
    v: Any,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    sm_scale: float | None = None,
    return_lse: bool = False,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    smooth_k: bool = True,
    smooth_v: bool = False,
    qk_quant_gran: str | None = None,
    pv_accum_dtype: str | None = None,
    quantization_backend: str | None = None,
) -> Any:
    """Attention with the arguments of sageattention.

    Args:
        q, k, v: [B, H, S, D] ("HND") or [B, S, H, D] ("NHD"). Unlike types become that of v, as
            there; the result has the type of q.
        tensor_layout: "HND" or "NHD".
        is_causal: aligned to the first query and key.
        sm_scale: 1/sqrt(D) by default.
        return_lse: also return the LSE [B, H, Sq], float32, natural logarithm.
        attn_mask, dropout_p: as in torch's scaled_dot_product_attention.
        smooth_k, smooth_v, qk_quant_gran, pv_accum_dtype, quantization_backend: choose among
            sageattention's numerics, and have no meaning here.

    Raises:
        ValueError: a layout of another name.
    """
    from ._default import default_layer
    from ._dispatch import dispatch
    from ._modules import running_layer
    from ._native import sdpa

    if tensor_layout not in _LAYOUTS:
        raise ValueError(
            f"tensor_layout: {tensor_layout!r}; expected HND or NHD. Pass one of them."
        )
    heads_first = tensor_layout == "HND"
    queries, keys, values = (x.transpose(1, 2) if heads_first else x for x in (q, k, v))
    queries, keys = (x.to(values.dtype) for x in (queries, keys))

    def native() -> Any:
        return sdpa(
            queries,
            keys,
            values,
            mask=attn_mask,
            dropout=dropout_p,
            causal=is_causal,
            scale=sm_scale,
            return_lse=return_lse,
        )

    result = dispatch(
        running_layer() or default_layer(model=_PACKAGE),
        queries,
        keys,
        values,
        native=native,
        mask=attn_mask,
        dropout=dropout_p,
        causal=is_causal,
        scale=sm_scale,
        return_lse=return_lse,
    )
    out, lse = result if return_lse else (result, None)
    out = (out.transpose(1, 2) if heads_first else out).to(q.dtype)
    return (out, lse) if return_lse else out


sageattn_qk_int8_pv_fp16_cuda = sageattn
sageattn_qk_int8_pv_fp16_triton = sageattn
sageattn_qk_int8_pv_fp8_cuda = sageattn
sageattn_qk_int8_pv_fp8_cuda_sm90 = sageattn


def sageattn_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    is_causal: bool = False,
    sm_scale: float | None = None,
    smooth_k: bool = True,
) -> Any:
    """Attention of packed sequences, [T, H, D]. Rows behind the last sequence are zero.

    Args:
        cu_seqlens_q, cu_seqlens_k: where each sequence begins, and the end of the last. Read on the
            host where FP8 does not serve the call, and with `is_causal` unless both are one tensor.
        max_seqlen_q, max_seqlen_k: tokens of the longest.
        q, k, v, is_causal, sm_scale, smooth_k: as for sageattn().
    """
    from ._default import default_layer
    from ._modules import running_layer
    from ._packed import attend_packed

    queries, keys = (x.to(v.dtype) for x in (q, k))

    def native() -> Any:
        return _one_by_one(queries, keys, v, cu_seqlens_q, cu_seqlens_k, is_causal, sm_scale)

    if is_causal and not _are_same(cu_seqlens_q, cu_seqlens_k):
        return native().to(q.dtype)  # from the first query and key, which the kernels do not offer
    out = attend_packed(
        running_layer() or default_layer(model=_PACKAGE),
        queries,
        keys,
        v,
        boundaries=(cu_seqlens_q, cu_seqlens_k),
        longest=(max_seqlen_q, max_seqlen_k),
        causal=is_causal,
        scale=sm_scale,
        dropout=0.0,
        native=native,
    )
    return out.to(q.dtype)


def _are_same(a: Any, b: Any) -> bool:
    return a is b or a.tolist() == b.tolist()


def _one_by_one(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, causal: bool, scale: float | None
) -> Any:
    """Packed sequences by torch's attention."""
    import torch

    from ._native import sdpa

    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    pairs = [itertools.pairwise(x.tolist()) for x in (cu_seqlens_q, cu_seqlens_k)]
    for of_q, of_k in zip(*pairs, strict=True):
        if of_q[0] == of_q[1] or of_k[0] == of_k[1]:
            continue
        queries, keys = slice(*of_q), slice(*of_k)
        one = q[None, queries], k[None, keys], v[None, keys]
        out[queries] = sdpa(*one, causal=causal, scale=scale)[0]
    return out


def install(*, replace: bool = False) -> None:
    """Makes ``import sageattention`` find this stand-in in this process.

    Raises:
        RuntimeError: sageattention itself is loaded already, and `replace` is not set.
    """
    loaded = sys.modules.get(_PACKAGE)
    if loaded is not None and not _is_ours(loaded):
        if not replace:
            raise RuntimeError(
                f"{_PACKAGE}: loaded already, from {getattr(loaded, '__file__', 'somewhere')}; "
                "expected to come first. Call install() before anything imports it, or pass "
                "replace=True; names that were imported from it stay what they are."
            )
        _forget()
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)


def uninstall() -> None:
    """Undoes install(); names that were imported from the stand-in stay what they are."""
    while FOLDER in sys.path:
        sys.path.remove(FOLDER)
    if _is_ours(sys.modules.get(_PACKAGE)):
        _forget()


def register() -> None:
    install()


def _is_ours(module: Any) -> bool:
    return str(getattr(module, "__file__", "")).startswith(FOLDER)


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == _PACKAGE]:
        del sys.modules[name]
