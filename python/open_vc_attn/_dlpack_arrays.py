# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of any framework that speaks DLPack, in CPU memory."""

from __future__ import annotations

from typing import Any

from . import _openvc
from ._arrays import Arrays, OutputSpec

_DLPACK_CPU = 1


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
                f"{name}: device {device}; expected CPU memory, or a torch tensor for other "
                f"devices. Use torch.from_dlpack({name}), which copies nothing."
            )
        _openvc.tensor_from_dlpack(name, array)

    def view(self, name: str, array: Any) -> _openvc.Tensor:
        return _openvc.tensor_from_dlpack(name, array)

    def empty(self, shape: tuple[int, ...], dtype: str, spec: OutputSpec) -> tuple[Any, int]:
        memory = _openvc.allocate(dtype, list(shape))
        return memory, _openvc.address(memory)

    def wrap_result(self, result: Any, spec: OutputSpec) -> Any:
        return spec.namespace.from_dlpack(result) if spec.namespace else result

    def output_spec(self, array: Any) -> OutputSpec:
        namespace = getattr(array, "__array_namespace__", lambda: None)()
        return OutputSpec(self.dtype_name(array), "cpu", namespace)

    def dtype(self, array: Any) -> str:
        return self.dtype_name(array)


DLPACK = DlpackArrays()
