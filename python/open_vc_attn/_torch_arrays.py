# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors as pointers and strides. Imported only when a torch tensor turns up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import _openvc
from ._arrays import ELEMENTS, RANKS, Arrays, Origin, unsupported_dtype

_NAMES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_ELEMENTS = {_DTYPES[name]: element for name, element in ELEMENTS.items()}
_DEVICES = {"cpu": _openvc.DeviceType.cpu, "cuda": _openvc.DeviceType.cuda}


def _plain_keys() -> int | None:
    """Bits of the dispatch keys that do nothing in front of a CPU or CUDA kernel without backward.

    None where this version of torch does not tell who watches a call.
    """
    names = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA")
    bits = 0
    try:
        torch.compiler.is_compiling()
        torch._C._is_torch_function_mode_enabled()
        torch.autograd._profiler_enabled()
        _dispatch_keys()
        for name in (*names, "ADInplaceOrView", "BackendSelect"):
            bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    except (AttributeError, TypeError):
        return None
    return bits


def _dispatch_keys(*tensors: Any) -> int:
    """Bits of all dispatch keys that a call with these tensors would visit."""
    keys: int = torch._C._dispatch_tls_local_include_set().raw_repr()
    for tensor in tensors:
        keys |= torch._C._dispatch_keys(tensor).raw_repr()
    return keys


_PLAIN_KEYS = _plain_keys()
# Builds of torch without CUDA lack it; versions without it are slower, not wrong.
_current_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


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

    def is_direct(self, q: Any, k: Any, v: Any) -> bool:
        # Compilers trace only as far as the next line.
        if _PLAIN_KEYS is None or torch.compiler.is_compiling():
            return False
        dtype, device, rank = q.dtype, q.device, q.dim()
        return (
            # Subclasses, modes and the profiler want to see the operator, and every transformation
            # of torch (vmap, grad, tracing, functionalization, fake and lazily negated tensors)
            # shows in the dispatch keys of its tensors or of the thread.
            type(q) is type(k) is type(v) is torch.Tensor
            and not (_dispatch_keys(q, k, v) & ~_PLAIN_KEYS)
            and not torch._C._is_torch_function_mode_enabled()
            and not torch.autograd._profiler_enabled()
            and dtype in _ELEMENTS
            and dtype == k.dtype == v.dtype
            and device == k.device == v.device
            and rank in RANKS
            and rank == k.dim() == v.dim()
            and not (
                (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled()
            )
        )

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        if array.is_neg():
            raise ValueError(f"{name} is a lazily negated view: use {name}.resolve_neg()")
        device = array.device
        return _openvc.tensor_from_pointer(
            array.data_ptr(),
            _ELEMENTS[array.dtype],
            _DEVICES[device.type],
            device.index or 0,
            array.shape,
            array.stride(),
        )

    def empty(self, shape: tuple[int, ...], dtype: str, origin: Origin) -> tuple[Any, int]:
        array = torch.empty(shape, dtype=_DTYPES[dtype], device=origin.device)
        return array, array.data_ptr()

    def stream(self, origin: Origin) -> int:
        if origin.device.type == "cpu":
            return 0
        if _current_raw_stream is not None:
            return int(_current_raw_stream(origin.device.index))
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
