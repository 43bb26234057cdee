# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of any framework that speaks DLPack, in CPU memory."""

from __future__ import annotations

import array as numbers_in_memory
import ctypes
from typing import Any, NamedTuple

from . import _openvc
from ._arrays import LARGEST_LENGTH, Arrays, KeyArray, OutputSpec

_DLPACK_CPU = 1
_VERSION = (1, 0)


class _Operand(NamedTuple):
    """An array as it described itself when it was asked, once per call.

    Producers may give another answer each time, or the same capsule, which is good for one use.
    """

    tensor: _openvc.Tensor
    namespace: Any  # of the array API standard

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.array_shape


class DlpackArrays(Arrays):
    """Arrays of any other framework that speaks DLPack, in CPU memory.

    Results come back through the framework's own ``from_dlpack`` if it follows the Python array
    API standard (``__array_namespace__``), and else as objects that speak DLPack.
    """

    name = "DLPack"

    def operands(self, q: Any, k: Any, v: Any, use: bool) -> tuple[Any, Any, Any]:
        by_array: dict[int, _Operand] = {}
        by_capsule: dict[int, tuple[Any, _openvc.Tensor]] = {}
        for name, array in (("q", q), ("k", k), ("v", v)):
            if id(array) in by_array:
                continue
            capsule, namespace = _ask(name, array)
            if id(capsule) not in by_capsule:
                tensor = _openvc.tensor_from_dlpack(name, capsule, use)
                by_capsule[id(capsule)] = capsule, tensor  # an id belongs to a living object
            by_array[id(array)] = _Operand(by_capsule[id(capsule)][1], namespace)
        return by_array[id(q)], by_array[id(k)], by_array[id(v)]

    def dtype_name(self, array: _Operand) -> str:
        return array.tensor.type.name

    def device_name(self, array: _Operand) -> str:
        return "cpu"

    def check(self, name: str, array: _Operand) -> None:
        pass  # operands() has refused what there is to refuse

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        if isinstance(array, _Operand):
            return array.tensor
        return _openvc.tensor_from_dlpack(name, array.__dlpack__(), True)  # a result of empty()

    def key_operand(self, name: str, array: Any, use: bool) -> KeyArray:
        plain = _openvc.array_from_dlpack(name, _ask(name, array)[0], use)
        return KeyArray(plain.type, "cpu", plain.shape, plain.pointer, tuple(plain.strides), plain)

    def key_array(self, array: KeyArray) -> KeyArray:
        return array

    def key_memory(self, name: str, array: KeyArray) -> KeyArray:
        return array

    def lengths(self, numbers: list[int], q: Any) -> KeyArray:
        memory = numbers_in_memory.array("i", numbers)
        address, count = memory.buffer_info()
        return KeyArray("int32", "cpu", (count,), address, (memory.itemsize,), memory)

    def as_int32(self, array: Any) -> KeyArray:
        kind = getattr(ctypes, f"c_{array.type}")
        count, step = (*array.shape, 1)[0], (*array.strides, 0)[0]
        found = [kind.from_address(array.pointer + i * step).value for i in range(count)]
        return self.lengths([max(0, min(x, LARGEST_LENGTH)) for x in found], None)

    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        memory = _openvc.allocate(dtype, list(shape))
        return memory, _openvc.address(memory)

    def wrap_result(self, result: Any, spec: OutputSpec) -> Any:
        return spec.namespace.from_dlpack(result) if spec.namespace else result

    def output_spec(self, array: _Operand) -> OutputSpec:
        return OutputSpec(self.dtype_name(array), "cpu", array.namespace)

    def dtype(self, array: _Operand) -> str:
        return self.dtype_name(array)


def _ask(name: str, array: Any) -> tuple[Any, Any]:
    """The capsule of an array in CPU memory, and its namespace if it has one."""
    try:
        kind, index = array.__dlpack_device__()
        on_cpu = int(kind) == _DLPACK_CPU
        capsule = _capsule(array) if on_cpu else None
        namespace = getattr(array, "__array_namespace__", lambda: None)()
    except Exception as error:  # objects of the caller raise what they like
        raise ValueError(
            f"{name}: {type(array).__name__}, whose DLPack functions raised "
            f"{type(error).__name__} ({error}); expected a capsule of them. "
            "Pass an array that speaks DLPack."
        ) from error
    if not on_cpu:
        raise NotImplementedError(
            f"{name}: device DLPack device ({int(kind)}, {index}); expected CPU memory, or a torch "
            f"tensor for other devices. Use torch.from_dlpack({name}), which copies nothing."
        )
    return capsule, namespace


def _capsule(array: Any) -> Any:
    try:
        return array.__dlpack__()
    except (BufferError, TypeError):
        # Arrays that are read only can say so since version 1, and need not offer less.
        return array.__dlpack__(max_version=_VERSION)


DLPACK = DlpackArrays()
