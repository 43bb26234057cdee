# SPDX-License-Identifier: BSD-3-Clause
"""NumPy arrays as pointers and strides. Does not import NumPy."""

from __future__ import annotations

import sys
from typing import Any

from . import _openvc
from ._arrays import ELEMENTS, Arrays, OutputSpec, unsupported_dtype


class NumpyArrays(Arrays):
    """numpy.ndarray of float16, float32 or ml_dtypes.bfloat16, in any strides."""

    name = "numpy"

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype.name)

    def device_name(self, array: Any) -> str:
        return "cpu"

    def check(self, name: str, array: Any) -> None:
        dtype = array.dtype
        masked_array = getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())
        if isinstance(array, masked_array):
            raise TypeError(
                f"{name} is a masked array, whose mask attention would ignore: use {name}.filled()"
            )
        if dtype.name not in ELEMENTS:
            raise unsupported_dtype(name, dtype.name, f"{name}.astype(numpy.float32)")
        if not dtype.isnative:
            raise TypeError(
                f"{name} has foreign byte order ({dtype.str}): use {name}.astype('{dtype.name}')"
            )
        if any(step % dtype.itemsize for step in (self._address(array), *array.strides)):
            raise ValueError(
                f"{name} has an address or strides (bytes: {array.strides}) that are no multiple "
                f"of its element size {dtype.itemsize}: use numpy.ascontiguousarray({name})"
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

    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        numpy = sys.modules["numpy"]
        # NumPy knows "bfloat16" by name only after ml_dtypes is imported, which q's dtype proves.
        array = numpy.empty(shape, dtype)
        return array, self._address(array)

    @staticmethod
    def _address(array: Any) -> int:
        return int(array.__array_interface__["data"][0])


NUMPY = NumpyArrays()
