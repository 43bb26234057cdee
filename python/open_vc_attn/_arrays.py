# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of several frameworks as pointers and strides, without importing any framework.

A framework is only looked up among the modules that are loaded already: a caller that passes a
torch tensor has imported torch.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _openvc

LAYOUT = "[S, H, 128] or [B, S, H, 128], sequence before heads"
ELEMENTS = {
    "bfloat16": _openvc.ElementType.bfloat16,
    "float16": _openvc.ElementType.float16,
    "float32": _openvc.ElementType.float32,
}
RANKS = (3, 4)

_DLPACK_CPU = 1


class Origin(NamedTuple):
    """Where results belong: what is left of q when its data are not needed any more."""

    dtype: str  # name of the element type
    device: Any  # the framework's own object
    namespace: Any = None  # of the array API standard


class Arrays(ABC):
    """What the package needs to know about one framework's tensors."""

    name: str

    @abstractmethod
    def dtype_name(self, array: Any) -> str:
        """Name of the element type, such as ``bfloat16``."""

    @abstractmethod
    def device_name(self, array: Any) -> str:
        """Name of the device, such as ``cpu`` or ``cuda:1``."""

    @abstractmethod
    def check(self, name: str, array: Any) -> None:
        """Refuses what cannot be read in place, naming the argument and the way out."""

    def is_direct(self, q: Any, k: Any, v: Any) -> bool:
        """Whether check_operands() would pass, and the kernels may read the memory right away.

        A cheap answer for the usual call: False only means that somebody has to look closer.
        """
        return False

    @abstractmethod
    def view(self, name: str, array: Any) -> _openvc.Tensor:
        """A view of a checked array, valid while the array lives."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, origin: Origin) -> tuple[Any, int]:
        """Fresh, contiguous memory on the device of `origin`, and its address."""

    def empty_like(self, query: Any, origin: Origin) -> Any:
        """Memory as from empty() for the output of attention."""
        return self.empty(tuple(query.shape), origin.dtype, origin)[0]

    def publish(self, result: Any, origin: Origin) -> Any:
        """What the caller gets for memory from empty() once it is written."""
        return result

    def origin(self, array: Any) -> Origin:
        """Where results for the query `array` belong."""
        return Origin(self.dtype_name(array), self.device_name(array))

    def call_opaque(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function that compilers of the framework must not trace."""
        return function(*args)

    def dtype(self, array: Any) -> Any:
        """The framework's own object for the element type."""
        return array.dtype

    def execution(self, origin: Origin) -> tuple[int, Callable[[int], Any] | None]:
        """Handle of the stream that the work belongs to, and where its device memory comes from.

        The latter gives so many bytes as a tensor with data_ptr(). On the CPU 0 and None.
        """
        return 0, None


def unsupported_dtype(name: str, dtype: str, cast: str) -> TypeError:
    """The error for an element type that the library does not read."""
    return TypeError(
        f"{name} has element type {dtype}; supported are {', '.join(ELEMENTS)}: use {cast}"
    )


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

    def empty(self, shape: tuple[int, ...], dtype: str, origin: Origin) -> tuple[Any, int]:
        numpy = sys.modules["numpy"]
        # NumPy knows "bfloat16" by name only after ml_dtypes is imported, which q's dtype proves.
        array = numpy.empty(shape, dtype)
        return array, self._address(array)

    @staticmethod
    def _address(array: Any) -> int:
        return int(array.__array_interface__["data"][0])


class DlpackArrays(Arrays):
    """Arrays of any other framework that speaks DLPack, in CPU memory.

    Results come back through the framework's own ``from_dlpack`` if it follows the Python array
    API standard (``__array_namespace__``), and else as objects that speak DLPack.
    """

    name = "DLPack"

    def dtype_name(self, array: Any) -> str:
        return _openvc.tensor_from_dlpack("array", array).type.name

    def device_name(self, array: Any) -> str:
        kind, index = array.__dlpack_device__()
        return "cpu" if int(kind) == _DLPACK_CPU else f"DLPack device ({int(kind)}, {index})"

    def check(self, name: str, array: Any) -> None:
        device = self.device_name(array)
        if device != "cpu":
            raise NotImplementedError(
                f"{name} lives on {device}; device arrays are supported as torch tensors only: "
                f"use torch.from_dlpack({name}), which copies nothing"
            )
        _openvc.tensor_from_dlpack(name, array)

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        return _openvc.tensor_from_dlpack(name, array)

    def empty(self, shape: tuple[int, ...], dtype: str, origin: Origin) -> tuple[Any, int]:
        memory = _openvc.allocate(dtype, list(shape))
        return memory, _openvc.address(memory)

    def publish(self, result: Any, origin: Origin) -> Any:
        return origin.namespace.from_dlpack(result) if origin.namespace else result

    def origin(self, array: Any) -> Origin:
        namespace = getattr(array, "__array_namespace__", lambda: None)()
        return Origin(self.dtype_name(array), "cpu", namespace)

    def dtype(self, array: Any) -> str:
        return self.dtype_name(array)


_NUMPY = NumpyArrays()
_DLPACK = DlpackArrays()


def arrays_of(name: str, array: Any) -> Arrays:
    """The framework of one argument."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from . import _torch_op  # registers the operators

        return _torch_op.TORCH
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _NUMPY
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _DLPACK
    raise TypeError(
        f"{name} must be a torch tensor, a numpy array or another DLPack array of layout {LAYOUT}, "
        f"not {type(array).__name__}"
    )


def check_operands(q: Any, k: Any, v: Any) -> Arrays:
    """The framework of Q, K and V, which must agree in framework, rank, dtype and device.

    Sizes are checked by the C++ library, which needs no framework for it.
    """
    arrays = arrays_of("q", q)
    if arrays.is_direct(q, k, v):
        return arrays
    named = (("q", q), ("k", k), ("v", v))
    frameworks = [arrays_of(name, array) for name, array in named]
    if any(other is not arrays for other in frameworks):
        raise TypeError(
            "q, k and v must come from one framework, not "
            + ", ".join(framework.name for framework in frameworks)
        )
    for name, array in named:
        arrays.check(name, array)
    ranks = [len(array.shape) for _, array in named]
    if ranks[0] not in RANKS or _differ(ranks):
        raise ValueError(
            f"q, k and v must all have layout {LAYOUT}, not shapes "
            + ", ".join(str(tuple(array.shape)) for _, array in named)
        )
    dtypes = [arrays.dtype_name(array) for _, array in named]
    if _differ(dtypes):
        raise TypeError(
            f"q, k and v must have one element type, not {', '.join(dtypes)}: "
            "cast them to the one that the output should have"
        )
    devices = [arrays.device_name(array) for _, array in named]
    if _differ(devices):
        raise ValueError(f"q, k and v must be on one device, not {', '.join(devices)}: move them")
    return arrays


def _differ(values: list[Any]) -> bool:
    return any(value != values[0] for value in values)
