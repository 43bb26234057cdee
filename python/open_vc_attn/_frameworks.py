# SPDX-License-Identifier: BSD-3-Clause
"""Which framework the arguments of a call belong to, and whether they fit each other.

No framework is imported here. One is only looked up among the modules that are loaded already: a
caller that passes a torch tensor has imported torch.
"""

from __future__ import annotations

import sys
from typing import Any

from ._arrays import LAYOUT, RANKS, Arrays
from ._dlpack_arrays import DLPACK
from ._numpy_arrays import NUMPY


def arrays_of(name: str, array: Any) -> Arrays:
    """The framework of one argument."""
    found = framework_of(name, array)
    if found is None:
        raise TypeError(
            f"{name}: {type(array).__name__}; expected a torch tensor, a numpy array or another "
            f"DLPack array of layout {LAYOUT}. Convert it, with numpy.asarray({name}, numpy.float32) "
            "for example."
        )
    return found


def framework_of(name: str, array: Any) -> Arrays | None:
    """The same, or None where it belongs to none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from ._torch_arrays import TORCH

        return TORCH
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return NUMPY
    # Compilers know the attributes of classes better than those of objects.
    if _speaks_dlpack(type(array) if is_compiling() else array):
        if is_compiling():
            from ._torch_support import leave_trace

            leave_trace(name, type(array).__name__)
        return DLPACK
    return None


def _speaks_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")


def is_compiling() -> bool:
    """Whether torch traces this call for a compiler."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "compiler") and torch.compiler.is_compiling()


def check_operands(q: Any, k: Any, v: Any, *, use: bool = True) -> tuple[Arrays, Any, Any, Any]:
    """The framework of Q, K and V, which must agree in framework, rank, dtype and device, and the
    three as it takes them; `use` as for Arrays.operands().

    Sizes are checked by the C++ library, which needs no framework for it.
    """
    arrays = arrays_of("q", q)
    if arrays.can_skip_dispatcher(q, k, v):
        return arrays, q, k, v
    named = (("q", q), ("k", k), ("v", v))
    frameworks = [arrays_of(name, array) for name, array in named]
    if any(other is not arrays for other in frameworks):
        raise TypeError(
            f"q, k, v: arrays of {', '.join(framework.name for framework in frameworks)}; expected "
            "one framework. Convert them to the one that the output should have."
        )
    if arrays is NUMPY and is_compiling():
        from ._torch_arrays import TRACED_NUMPY

        arrays = TRACED_NUMPY
    q, k, v = arrays.operands(q, k, v, use)
    named = (("q", q), ("k", k), ("v", v))
    for name, array in named:
        arrays.check(name, array)
    require_agreement(arrays, q, k, v)
    return arrays, q, k, v


def require_agreement(arrays: Arrays, q: Any, k: Any, v: Any) -> None:
    """Refuses operands that differ in rank, element type or device."""
    ranks = [len(array.shape) for array in (q, k, v)]
    if ranks[0] not in RANKS or _differ(ranks):
        raise ValueError(
            f"q, k, v: shapes {', '.join([arrays.shape_text(x) for x in (q, k, v)])}; expected "
            f"the layout {LAYOUT}, the same for all three. Reshape them, and transpose if heads "
            "come before the sequence."
        )
    dtypes = [arrays.dtype_name(array) for array in (q, k, v)]
    if _differ(dtypes):
        raise TypeError(
            f"q, k, v: element types {', '.join(dtypes)}; expected one for all three. "
            "Convert them to the one that the output should have."
        )
    devices = [arrays.device_name(array) for array in (q, k, v)]
    if _differ(devices):
        raise ValueError(
            f"q, k, v: devices {', '.join(devices)}; expected one for all three. Move them."
        )


def _differ(values: list[Any]) -> bool:
    return any(value != values[0] for value in values)
