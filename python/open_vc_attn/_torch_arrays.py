# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors as pointers and strides. Imported only when a torch tensor turns up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import _openvc
from ._arrays import ELEMENTS, Arrays, Origin, unsupported_dtype, view_of_pointer

_NAMES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_DEVICES = {"cpu": _openvc.DeviceType.cpu, "cuda": _openvc.DeviceType.cuda}


class TorchArrays(Arrays):
    """torch.Tensor on the CPU or a CUDA device, in any strides."""

    name = "torch"

    def dtype_name(self, array: Any) -> str:
        return _NAMES.get(array.dtype) or str(array.dtype)

    def device_name(self, array: Any) -> str:
        return str(array.device)

    def origin(self, array: Any) -> Origin:
        return Origin(self.dtype_name(array), array.device)

    def check(self, name: str, array: Any) -> None:
        if array.layout != torch.strided:
            raise NotImplementedError(
                f"{name} has layout {array.layout}; attention reads dense tensors: "
                f"use {name}.to_dense()"
            )
        if array.device.type == "meta":
            raise ValueError(f"{name} is a meta tensor, which holds no data")
        if array.device.type not in _DEVICES:
            raise NotImplementedError(
                f"{name} lives on {array.device}; supported are cpu and cuda: use {name}.cpu()"
            )
        if _NAMES.get(array.dtype) not in ELEMENTS:
            raise unsupported_dtype(name, str(array.dtype), f"{name}.to(torch.bfloat16)")
        if array.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires grad, and FP8 attention has no backward: run it under "
                f"torch.no_grad() or torch.inference_mode(), or pass {name}.detach()"
            )

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        if array.is_neg():
            raise ValueError(f"{name} is a lazily negated view: use {name}.resolve_neg()")
        return view_of_pointer(
            array.data_ptr(),
            _NAMES[array.dtype],
            tuple(array.shape),
            array.stride(),
            _DEVICES[array.device.type],
            array.device.index or 0,
        )

    def empty(self, shape: tuple[int, ...], dtype: str, origin: Origin) -> tuple[Any, int]:
        array = torch.empty(shape, dtype=_DTYPES[dtype], device=origin.device)
        return array, array.data_ptr()

    def stream(self, origin: Origin) -> int:
        if origin.device.type == "cpu":
            return 0
        return int(torch.cuda.current_stream(origin.device).cuda_stream)

    def allocator(self, origin: Origin) -> Callable[[int], Any] | None:
        if origin.device.type == "cpu":
            return None
        return functools.partial(torch.empty, dtype=torch.uint8, device=origin.device)

    def call_opaque(self, function: Callable[..., Any], *args: Any) -> Any:
        return _call_untraced(function, *args)


def _call_untraced(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


if hasattr(torch, "compiler"):  # torch 2.1
    _call_untraced = torch.compiler.disable(_call_untraced)

TORCH = TorchArrays()
