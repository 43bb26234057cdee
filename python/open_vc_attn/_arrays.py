# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of several frameworks as pointers and strides, without importing any framework.

A framework is only looked up among the modules that are loaded already: a caller that passes a
torch tensor has imported torch.
"""

from __future__ import annotations

import ctypes
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _openvc
from ._native_options import cached_options

LARGEST_HEAD_DIM = 128
HEAD_DIM_STEP = 8
HEAD_DIMS = f"a multiple of {HEAD_DIM_STEP} up to {LARGEST_HEAD_DIM}"
LARGEST_LENGTH = 2**31 - 1
"""Lengths of sequences are int32."""
LAYOUT = "[S, H, D] or [B, S, H, D], sequence before heads"
ELEMENTS = {
    "bfloat16": _openvc.ElementType.bfloat16,
    "float16": _openvc.ElementType.float16,
    "float32": _openvc.ElementType.float32,
}
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
RANKS = (3, 4)


def is_head_dim(channels: int) -> bool:
    """Whether the kernels compute heads of so many channels."""
    return 0 < channels <= LARGEST_HEAD_DIM and channels % HEAD_DIM_STEP == 0


class OutputSpec(NamedTuple):
    """Where results belong: what is left of q when its data are not needed any more."""

    dtype: str  # name of the element type
    device: Any  # the framework's own object
    namespace: Any = None  # of the array API standard


class KeyArray(NamedTuple):
    """An argument that selects keys."""

    dtype: str  # name of the element type
    device: str
    shape: Any
    address: int = 0
    strides: tuple[int, ...] = ()  # bytes
    memory: Any = None  # what keeps the address valid


class Arrays(ABC):
    """What the package needs to know about one framework's tensors."""

    name: str
    has_operators = False  # of torch's dispatcher

    @abstractmethod
    def dtype_name(self, array: Any) -> str:
        """Name of the element type, such as ``bfloat16``."""

    @abstractmethod
    def device_name(self, array: Any) -> str:
        """Name of the device, such as ``cpu`` or ``cuda:1``."""

    def shape_text(self, array: Any) -> str:
        """The shape in a message."""
        return str(list(array.shape))

    @abstractmethod
    def check(self, name: str, array: Any) -> None:
        """Refuses what cannot be read in place, naming the argument and what to do."""

    def can_skip_dispatcher(self, q: Any, k: Any, v: Any) -> bool:
        """Whether check_operands() would pass, and the kernels may read the memory right away.

        A cheap answer for the usual call: False only means that somebody has to look closer.
        """
        return False

    def operands(self, q: Any, k: Any, v: Any, use: bool) -> tuple[Any, Any, Any]:
        """The three in the form that the other functions take.

        `use` is for a call. A question must leave arrays as they are.
        """
        return q, k, v

    @abstractmethod
    def view(self, name: str, array: Any) -> _openvc.Tensor:
        """A view of a checked array, valid while the array lives.

        The sizes of memory come from views, because attributes of a caller's class may say
        something else.
        """

    def support(self, q: Any, k: Any, v: Any, options: tuple[Any, ...]) -> tuple[bool, str]:
        """Whether attention would run on checked operands, and if not, why."""
        views = self.view("q", q), self.view("k", k), self.view("v", v)
        return _openvc.is_supported(*views, cached_options(*options))

    def is_plain(self, array: Any) -> bool:
        """Whether an argument that selects keys leaves can_skip_dispatcher() as it is."""
        return True

    @abstractmethod
    def key_operand(self, name: str, array: Any, use: bool) -> Any:
        """An argument that selects keys in the form that the next functions take; `use` as for
        operands()."""

    @abstractmethod
    def key_array(self, array: Any) -> KeyArray:
        """What it is, without its address."""

    @abstractmethod
    def key_memory(self, name: str, array: Any) -> KeyArray:
        """The same with its address."""

    @abstractmethod
    def lengths(self, numbers: list[int], q: Any) -> Any:
        """Numbers from 0 to 2**31 - 1 as int32, where q is."""

    def host_numbers(self, array: Any) -> list[int] | None:
        """Integers [N] from key_operand() as Python's, where reading them waits for nothing."""
        return None

    @abstractmethod
    def as_int32(self, array: Any) -> Any:
        """The `memory` of lengths as fresh, contiguous int32, limited to what that holds."""

    def same_size(self, a: Any, b: Any) -> bool:
        """Whether two sizes are the same, as far as that is known."""
        return bool(a == b)

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        """Fresh, contiguous memory on the device of `spec`, and its address."""

    def empty_like(self, query: Any, shape: tuple[int, ...], spec: OutputSpec) -> Any:
        """Memory as from empty() for the output of attention. `shape` is the query's."""
        return self.empty(shape, spec.dtype, spec)[0]

    def fill(self, array: Any, address: int, size: int, value: float) -> None:
        """Fills fresh memory, `size` bytes from empty(), with a binary32 number; 0 is that of all
        types."""
        number = struct.pack("f", value)
        ctypes.memmove(address, number * (size // len(number)), size)

    def wrap_result(self, result: Any, spec: OutputSpec) -> Any:
        """What the caller gets for memory from empty() once it is written."""
        return result

    def wrap_operator_result(self, result: Any) -> Any:
        """What the caller gets for the result of an operator, one tensor or a pair."""
        return result

    def output_spec(self, array: Any) -> OutputSpec:
        """Where results for the query `array` belong."""
        return OutputSpec(self.dtype_name(array), self.device_name(array))

    def call_untraced(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function that compilers of the framework must not trace."""
        return function(*args)

    def dtype(self, array: Any) -> Any:
        """The framework's own object for the element type."""
        return array.dtype

    def execution(self, spec: OutputSpec) -> tuple[int, Callable[[int], Any] | None]:
        """Handle of the stream that the work belongs to, and where its device memory comes from.

        The latter gives so many bytes as a tensor with data_ptr(). On the CPU 0 and None.
        """
        return 0, None

    def record_use(self, memory: Any) -> None:  # noqa: B027 - only devices with streams need it
        """Device memory of execution() is about to be used on the stream that is current now.

        Called where that is another stream than the one that the memory was allocated for.
        """


def unsupported_dtype(name: str, dtype: str, advice: str) -> TypeError:
    """The error for an element type that the library does not read."""
    return TypeError(f"{name}: element type {dtype}; expected {', '.join(ELEMENTS)}. {advice}.")
