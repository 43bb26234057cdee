# SPDX-License-Identifier: BSD-3-Clause
"""NumPy arrays as pointers and strides. Does not import NumPy."""

from __future__ import annotations

import sys
from typing import Any

from . import _openvc
from ._arrays import ELEMENTS, LARGEST_LENGTH, Arrays, KeyArray, OutputSpec, unsupported_dtype

_BFLOAT16_BYTES = 2
_NO_REAL_NUMBERS = "cOSUmM"  # NumPy's kinds: complex, objects, texts, times


class NumpyArrays(Arrays):
    """numpy.ndarray of float16, float32 or ml_dtypes.bfloat16, in any strides."""

    name = "numpy"

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype.name)

    def device_name(self, array: Any) -> str:
        return "cpu"

    def operands(self, q: Any, k: Any, v: Any, use: bool) -> tuple[Any, Any, Any]:
        return _plain("q", q), _plain("k", k), _plain("v", v)

    def check(self, name: str, array: Any) -> None:
        dtype = array.dtype
        if dtype.name not in ELEMENTS:
            raise unsupported_dtype(name, dtype.name, _conversion(name, dtype))
        if not dtype.isnative:
            raise TypeError(
                f"{name}: byte order {dtype.str}; expected this machine's. "
                f"Use {name}.astype('{dtype.name}')."
            )
        if any(step % dtype.itemsize for step in (self._address(array), *array.strides)):
            raise ValueError(
                f"{name}: address {self._address(array):#x} and strides of {array.strides} bytes; "
                f"expected multiples of the element size {dtype.itemsize}. Use {name}.copy()."
            )

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        return _openvc.tensor_from_pointer(
            self._address(array),
            ELEMENTS[array.dtype.name],
            _openvc.DeviceType.cpu,
            0,
            array.shape,
            tuple(stride // array.dtype.itemsize for stride in array.strides),
        )

    def key_operand(self, name: str, array: Any, use: bool) -> Any:
        array = _plain(name, array)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def key_array(self, array: Any) -> KeyArray:
        return KeyArray(array.dtype.name, "cpu", array.shape)

    def key_memory(self, name: str, array: Any) -> KeyArray:
        return self.key_array(array)._replace(
            address=self._address(array), strides=array.strides, memory=array
        )

    def lengths(self, numbers: list[int], q: Any) -> Any:
        return sys.modules["numpy"].array(numbers, "int32")

    def host_numbers(self, array: Any) -> list[int] | None:
        return array.tolist() if array.ndim == 1 else None

    def as_int32(self, array: Any) -> Any:
        numpy = sys.modules["numpy"]
        return numpy.clip(array.astype("int64"), 0, LARGEST_LENGTH).astype("int32", "C")

    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        numpy = sys.modules["numpy"]
        # NumPy knows "bfloat16" by name only after ml_dtypes is imported, which q's dtype proves.
        array = numpy.empty(shape, dtype)
        return array, self._address(array)

    @staticmethod
    def _address(array: Any) -> int:
        return int(array.__array_interface__["data"][0])


def _plain(name: str, array: Any) -> Any:
    """An array without the attributes that its class may add or change."""
    masked_array = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
    if isinstance(array, masked_array):
        raise TypeError(
            f"{name}: a masked array; expected one without a mask, which attention would "
            f"ignore. Use {name}.filled(0) for zeros in place of what is masked."
        )
    ndarray = sys.modules["numpy"].ndarray
    return array if type(array) is ndarray else ndarray.view(array, ndarray)


def _conversion(name: str, dtype: Any) -> str:
    """What to do about a type that the library does not read."""
    if dtype.type is sys.modules["numpy"].void:
        if dtype.itemsize != _BFLOAT16_BYTES or dtype.fields is not None:
            return "Pass an array of real numbers"
        return (
            "Files of NumPy keep the bits of bfloat16 but not its name: if these are such bits, "
            f"use {name}.view(ml_dtypes.bfloat16)"
        )
    if dtype.name == "uint16":
        return (
            f"Use {name}.view(ml_dtypes.bfloat16) if these are the bits of bfloat16, "
            f"{name}.astype(numpy.float32) if they are whole numbers"
        )
    if dtype.kind in _NO_REAL_NUMBERS:
        return "Pass an array of real numbers"
    return f"Use {name}.astype(numpy.float32)"


NUMPY = NumpyArrays()
