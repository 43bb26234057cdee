# SPDX-License-Identifier: BSD-3-Clause
"""Reading of a recorded attention call. Refuses what the program's reader refuses."""

from __future__ import annotations

import ctypes
import math
import os
import re
from typing import Any, NamedTuple

from . import _safetensors

_NAMES = "qkv"
_ELEMENT_TYPES = ("BF16", "F16", "F32")
_RANKS = (3, 4)
_HEADS_AFTER_TOKENS = {"SHD": True, "BSHD": True, "HSD": False, "BHSD": False}
_FLAGS = {"true": True, "false": False}
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

    Metadata "layout" HSD or BHSD stands for heads before tokens. The softmax scale is 1/sqrt(D)
    and the call neither causal nor masked unless the metadata say otherwise.

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
    layout = metadata.get("layout", "BSHD")
    if layout not in _HEADS_AFTER_TOKENS:
        raise ValueError(
            f"{path}: metadata layout must be {', '.join(_HEADS_AFTER_TOKENS)}, not {layout!r}"
        )
    causal, masked = (_flag(path, key, metadata) for key in ("causal", "masked"))
    scale = metadata.get("softmax_scale")
    if scale is not None and not (_NUMBER.fullmatch(scale) and is_softmax_scale(float(scale))):
        raise ValueError(f"{path}: metadata softmax_scale must be a number > 0, not {scale!r}")
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


def is_softmax_scale(value: float) -> bool:
    """Whether attention takes this scale, which it holds in binary32: finite there and above 0."""
    return 0.0 < ctypes.c_float(value).value < math.inf


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


def _flag(path: str | os.PathLike[str], key: str, metadata: dict[str, str]) -> bool:
    text = metadata.get(key, "false")
    if text not in _FLAGS:
        raise ValueError(f"{path}: metadata {key} must be true or false, not {text!r}")
    return _FLAGS[text]
