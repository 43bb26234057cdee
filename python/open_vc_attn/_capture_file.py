# SPDX-License-Identifier: BSD-3-Clause
"""Reading of a recorded attention call. Refuses what the program's reader refuses."""

from __future__ import annotations

import ctypes
import math
import os
import re
from typing import Any, NamedTuple

from . import _safetensors
from ._options import SCALES, is_softmax_scale

_NAMES = "qkv"
_ELEMENT_TYPES = ("BF16", "F16", "F32")
_RANKS = (3, 4)
_HEADS_AFTER_TOKENS = {"SHD": True, "BSHD": True, "HSD": False, "BHSD": False}
_FLAGS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
# Parameters of attention under names that are not taken, with the name that is. Dropping one would
# compute another call in silence. The program has the same list.
_FOREIGN_PARAMETERS = {
    "scale": "softmax_scale",
    "sm_scale": "softmax_scale",
    "scaling": "softmax_scale",
    "is_causal": "causal",
    "tensor_layout": "layout",
    "qkv_layout": "layout",
    "attn_mask": "",
    "attention_mask": "",
    "mask": "",
    "attn_bias": "",
    "bias": "",
    "alibi_slopes": "",
    "dropout": "",
    "dropout_p": "",
    "softcap": "",
    "logit_softcapping": "",
    "window": "",
    "window_size": "",
    "sliding_window": "",
    "block_mask": "",
    "cu_seqlens": "",
    "cu_seqlens_q": "",
    "cu_seqlens_k": "",
    "enable_gqa": "",
}
# Python's float() also takes spaces, underscores and words.
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Capture(NamedTuple):
    """One recorded attention call, from load_capture()."""

    q: Any
    """Torch tensor, [S, H, D] or [B, S, H, D], like k and v."""
    k: Any
    v: Any
    causal: bool
    softmax_scale: float
    metadata: dict[str, str]
    """Everything else that the file says."""
    masked: bool = False
    """The call had a mask, which is not stored and which attention() does not offer: what is
    computed from this capture is another call."""


def load_capture(path: str | os.PathLike[str]) -> Capture:
    """Reads a file of capture(), or any safetensors file with tensors q, k and v.

    The file may say more about the call, in metadata or in tensors of one number: "softmax_scale",
    else 1/sqrt(D); "causal" and "masked", else false; "layout" HSD or BHSD for heads before tokens.
    Other metadata are free text; a parameter of attention by another name is refused.

    Raises:
        ValueError: the file is malformed, lacks a tensor, or has a tensor or metadata that no
            attention call can have.
        ImportError: torch is not installed.
        OSError: the file cannot be read.
    """
    tensors, metadata = _safetensors.load(path)
    missing = [name for name in _NAMES if name not in tensors]
    if missing:
        raise ValueError(f"{path}: has no tensor {', '.join(missing)}, only {', '.join(tensors)}")
    for name in _NAMES:
        _check_tensor(path, name, tensors[name])
    _refuse_foreign_parameters(path, tensors, metadata)
    said = {
        key: _statement(path, key, tensors, metadata)
        for key in ("layout", "causal", "masked", "softmax_scale")
    }
    layout = "BSHD" if said["layout"] is None else said["layout"]
    if layout not in _HEADS_AFTER_TOKENS:
        raise ValueError(
            f"{path}: found layout {layout!r}; expected {', '.join(_HEADS_AFTER_TOKENS)}. Correct "
            "it in the file."
        )
    causal, masked = (_flag(path, key, said[key]) for key in ("causal", "masked"))
    scale = said["softmax_scale"]
    if scale is not None and not (_NUMBER.fullmatch(scale) and is_softmax_scale(float(scale))):
        raise ValueError(
            f"{path}: found softmax_scale {scale!r}; expected a number from {SCALES}. Correct it in "
            "the file."
        )
    q, k, v = (tensors[name].torch() for name in _NAMES)
    if not _HEADS_AFTER_TOKENS[layout]:
        q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
    return Capture(
        q,
        k,
        v,
        causal=causal,
        softmax_scale=q.shape[-1] ** -0.5 if scale is None else float(scale),
        metadata=metadata,
        masked=masked,
    )


def _check_tensor(path: str | os.PathLike[str], name: str, tensor: Any) -> None:
    if tensor.dtype not in _ELEMENT_TYPES:
        raise ValueError(
            f"{path}: tensor {name} has the element type {tensor.dtype}, not one of "
            f"{', '.join(_ELEMENT_TYPES)}; convert it"
        )
    if len(tensor.shape) not in _RANKS:
        raise ValueError(
            f"{path}: tensor {name} must be [S, H, D] or [B, S, H, D], not of shape "
            f"{list(tensor.shape)}"
        )


def _statement(
    path: str | os.PathLike[str],
    key: str,
    tensors: dict[str, _safetensors.StoredTensor],
    metadata: dict[str, str],
) -> str | None:
    """What the file says under this key, in metadata or in a tensor of one number."""
    text = metadata.get(key)
    if key not in tensors:
        return text
    tensor = tensors[key]
    if math.prod(tensor.shape) != 1 or tensor.dtype not in _safetensors.ITEM_SIZES:
        raise ValueError(
            f"{path}: found {key} of {tensor.dtype} {list(tensor.shape)}; expected a tensor of one "
            "number. Store the value as one number."
        )
    value = tensor.torch().reshape(()).item()
    stored = str(value).lower() if isinstance(value, bool) else repr(value)
    if stored.endswith(".0"):
        stored = stored.removesuffix(".0")
    if text is not None and not _same(key, text, stored):
        raise ValueError(
            f"{path}: found {key} {text!r} in the metadata and {stored!r} in a tensor; expected one "
            "value. Store it once."
        )
    return stored


def _same(key: str, a: str, b: str) -> bool:
    if key == "softmax_scale" and _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b):
        return ctypes.c_float(float(a)).value == ctypes.c_float(float(b)).value
    return _FLAGS.get(a, a) == _FLAGS.get(b, b)


def _refuse_foreign_parameters(
    path: str | os.PathLike[str],
    tensors: dict[str, _safetensors.StoredTensor],
    metadata: dict[str, str],
) -> None:
    for name, own_name in _FOREIGN_PARAMETERS.items():
        if name not in tensors and name not in metadata:
            continue
        if own_name:
            raise ValueError(
                f"{path}: found the parameter {name!r} of attention; expected the name {own_name} "
                "for it. Rename it in the file."
            )
        raise ValueError(
            f"{path}: found the parameter {name!r} of attention; expected softmax_scale, causal, "
            "masked or layout. This library does not offer it: leave it out of the file. If the "
            "call had a mask, store masked = true instead."
        )


def _flag(path: str | os.PathLike[str], key: str, text: str | None) -> bool:
    if text is None:
        return False
    if text not in _FLAGS:
        raise ValueError(
            f"{path}: found {key} {text!r}; expected true or false. Correct it in the file."
        )
    return _FLAGS[text]
