# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors as pointers and strides. Imported only when a torch tensor turns up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from . import _openvc
from ._arrays import (
    ELEMENTS,
    LARGEST_LENGTH,
    RANKS,
    Arrays,
    KeyArray,
    OutputSpec,
    unsupported_dtype,
)
from ._torch_state import derivative, unusual_kind, unwrapped, without_memory
from ._torch_support import (
    constant_options,
    has_symbols,
    operand,
    same_size,
    support_by_shape,
    traced_support,
)

_NAMES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_ELEMENTS = {_DTYPES[name]: element for name, element in ELEMENTS.items()}
_CPU = _openvc.DeviceType.cpu
_CUDA = _openvc.DeviceType.cuda
_DEVICES = ("cpu", "cuda")

_tensor_from_pointer = _openvc.tensor_from_pointer


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
        _ = forward_ad._current_level
        torch._C._dispatch_keys(torch.empty(0)).raw_repr()
        torch._C._dispatch_tls_local_include_set().raw_repr()
        for name in (*names, "ADInplaceOrView", "BackendSelect"):
            bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    except (AttributeError, TypeError):
        return None
    return bits


_PLAIN_KEYS = _plain_keys()
# Builds of torch without CUDA lack it; versions without it are slower, not wrong.
_current_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class TorchArrays(Arrays):
    """torch.Tensor on the CPU or a CUDA device, in any strides."""

    name = "torch"
    has_operators = True

    def dtype_name(self, array: Any) -> str:
        return _NAMES.get(array.dtype) or str(array.dtype)

    def device_name(self, array: Any) -> str:
        return str(array.device)

    def shape_text(self, array: Any) -> str:
        # Compilers cannot write the sizes that they do not know.
        return f"of {array.dim()} axes" if torch.compiler.is_compiling() else str([*array.shape])

    def output_spec(self, array: Any) -> OutputSpec:
        return OutputSpec(self.dtype_name(array), array.device)

    def check(self, name: str, array: Any) -> None:
        _check_kind(name, array)
        self.check_element_type(name, array)
        differentiated = derivative(array)
        if differentiated is not None:
            raise ValueError(differentiated.text(name))

    def check_element_type(self, name: str, array: Any) -> None:
        """Refuses what the library does not read."""
        if array.dtype not in _ELEMENTS:
            raise unsupported_dtype(name, str(array.dtype), f"Use {name}.to(torch.bfloat16)")

    def can_skip_dispatcher(self, q: Any, k: Any, v: Any) -> bool:
        # Compilers trace only as far as the next line.
        if _PLAIN_KEYS is None or torch.compiler.is_compiling():
            return False
        if not (type(q) is type(k) is type(v) is torch.Tensor):
            return False
        core = torch._C
        # Every transformation of torch (vmap, grad, tracing, functionalization, fake and lazily
        # negated tensors) shows in the dispatch keys of its tensors or of the thread.
        keys = (
            core._dispatch_tls_local_include_set().raw_repr()
            | core._dispatch_keys(q).raw_repr()
            | core._dispatch_keys(k).raw_repr()
            | core._dispatch_keys(v).raw_repr()
        )
        if keys & ~_PLAIN_KEYS:
            return False
        # Modes and the profiler want to see the operator.
        if core._is_torch_function_mode_enabled() or torch.autograd._profiler_enabled():
            return False
        dtype, device, rank = q.dtype, q.device, q.dim()
        return (
            dtype in _ELEMENTS
            and dtype == k.dtype == v.dtype
            and device == k.device == v.device
            and rank in RANKS
            and rank == k.dim() == v.dim()
            and not (
                (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled()
            )
            and forward_ad._current_level < 0
        )

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        array = _in_memory(name, array)
        shape, strides = array.shape, array.stride()
        _require_storage(name, array, shape, strides)
        return _tensor_from_pointer(
            array.data_ptr(),
            _ELEMENTS[array.dtype],
            _CUDA if array.is_cuda else _CPU,
            array.get_device(),
            shape,
            strides,
        )

    def support(self, q: Any, k: Any, v: Any, options: tuple[Any, ...]) -> tuple[bool, str]:
        # Compilers trace only as far as the first question.
        if torch.compiler.is_compiling() or has_symbols(q, k, v):
            return traced_support(q, k, v, options)
        if any(without_memory(x) for x in (q, k, v)):
            return support_by_shape(*map(operand, (q, k, v)), constant_options(options))
        return super().support(q, k, v, options)

    def is_plain(self, array: Any) -> bool:
        return array is None or (type(array) is torch.Tensor and not _hidden_keys(array))

    def key_operand(self, name: str, array: Any, use: bool) -> Any:
        _check_kind(name, array)
        return array

    def key_array(self, array: Any) -> KeyArray:
        return KeyArray(str(array.dtype).removeprefix("torch."), str(array.device), array.shape)

    def key_memory(self, name: str, array: Any) -> KeyArray:
        array = _in_memory(name, array)
        shape, strides = array.shape, array.stride()
        _require_storage(name, array, shape, strides)
        step = array.itemsize
        return self.key_array(array)._replace(
            address=array.data_ptr(), strides=tuple([step * x for x in strides]), memory=array
        )

    def lengths(self, numbers: list[int], q: Any) -> Any:
        # Kernels write the numbers: a copy from the host would wait, and be none in a CUDA graph.
        return torch.cat(
            [torch.full((1,), number, dtype=torch.int32, device=q.device) for number in numbers]
            or [torch.empty((0,), dtype=torch.int32, device=q.device)]
        )

    def host_numbers(self, array: Any) -> list[int] | None:
        if torch.compiler.is_compiling() or array.device.type != "cpu" or array.dim() != 1:
            return None
        if _hidden_keys(array):  # a trace, or another kind of tensor
            return None
        return array.tolist()

    def as_int32(self, array: Any) -> Any:
        return array.to(torch.int64).clamp(0, LARGEST_LENGTH).to(torch.int32).contiguous()

    def same_size(self, a: Any, b: Any) -> bool:
        if isinstance(a, int) and isinstance(b, int) and not torch.compiler.is_compiling():
            return a == b
        return same_size(a, b)

    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        array = torch.empty(shape, dtype=_DTYPES[dtype], device=spec.device)
        # A mode of the caller may have faked it.
        return array, _in_memory("the result", array).data_ptr()

    def empty_like(self, query: Any, shape: tuple[int, ...], spec: OutputSpec) -> Any:
        if type(query) is torch.Tensor:
            return torch.empty_like(query, memory_format=torch.contiguous_format)
        return self.empty(shape, spec.dtype, spec)[0]

    def fill(self, array: Any, address: int, size: int, value: float) -> None:
        array.fill_(value)

    def execution(self, spec: OutputSpec) -> tuple[int, Callable[[int], Any] | None]:
        device = spec.device
        if device.type == "cpu":
            return 0, None
        allocate = functools.partial(torch.empty, dtype=torch.uint8, device=device)
        if _current_raw_stream is not None:
            return _current_raw_stream(device.index), allocate
        return torch.cuda.current_stream(device).cuda_stream, allocate

    def record_use(self, memory: torch.Tensor) -> None:
        memory.record_stream(torch.cuda.current_stream(memory.device))

    def call_untraced(self, function: Callable[..., Any], *args: Any) -> Any:
        return _call_untraced(function, *args)


def _check_kind(name: str, array: Any) -> None:
    """Refuses kinds of tensors and devices that no function of this package can take."""
    unusual = unusual_kind(array)
    if unusual is not None:
        raise NotImplementedError(unusual.text(name))
    if array.device.type not in _DEVICES:
        raise NotImplementedError(
            f"{name}: device {array.device}; expected cpu or cuda. Use {name}.cpu()."
        )


def _hidden_keys(array: Any) -> bool:
    """Whether there may be more to a tensor than numbers in memory."""
    return _PLAIN_KEYS is None or bool(torch._C._dispatch_keys(array).raw_repr() & ~_PLAIN_KEYS)


def _in_memory(name: str, array: Any) -> Any:
    """The plain tensor whose numbers are those of `array`, in memory."""
    if _hidden_keys(array):
        obstacle = without_memory(array)
        if obstacle is not None:
            raise NotImplementedError(obstacle.text(name))
        array = unwrapped(array)
    if type(array) is not torch.Tensor:
        # Without the attributes that a subclass may change.
        with torch._C.DisableTorchFunctionSubclass():
            array = torch.Tensor.as_subclass(array, torch.Tensor)
    return array


def _require_storage(name: str, array: Any, shape: Any, strides: Any) -> None:
    """Refuses a tensor whose storage somebody has resized: it reaches beyond its memory."""
    end = array.storage_offset() + 1
    for size, stride in zip(shape, strides, strict=True):
        end += (size - 1) * stride
    found = array.untyped_storage().nbytes()
    if end * array.itemsize > found and array.numel():
        raise ValueError(
            f"{name}: a storage of {found} bytes; expected {end * array.itemsize}, which its shape "
            "and strides reach. Pass a tensor whose storage was not resized."
        )


def _call_untraced(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


if hasattr(torch, "compiler"):  # torch 2.1
    _call_untraced = torch.compiler.disable(_call_untraced)


class TracedNumpyArrays(TorchArrays):
    """NumPy arrays in a compiled function, where they are tensors to the compiler."""

    name = "numpy"

    def operands(self, q: Any, k: Any, v: Any, use: bool) -> tuple[Any, Any, Any]:
        return torch.from_numpy(q), torch.from_numpy(k), torch.from_numpy(v)

    def key_operand(self, name: str, array: Any, use: bool) -> Any:
        return torch.from_numpy(array)

    def wrap_operator_result(self, result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple([part.numpy() for part in result])
        return result.numpy()


TORCH = TorchArrays()
TRACED_NUMPY = TracedNumpyArrays()
