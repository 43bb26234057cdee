# SPDX-License-Identifier: BSD-3-Clause
"""Whether a call would run, for torch tensors without memory: fake, traced and wrapped ones.

An operand is described by plain numbers and strings here, which compilers can hold as constants.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from . import _openvc
from ._arrays import ELEMENTS, HEAD_DIM_STEP, HEAD_DIMS, LARGEST_HEAD_DIM, LAYOUT
from ._native_options import cached_options, call_options

# Stands for the address of a tensor that has none; aligned for every element type.
_PLACEHOLDER_ADDRESS = 4096
_DEFAULT_OPTIONS = call_options(False, None, "mid_window", None)

_DO_NOT_FIT = (
    "q, k, v: shapes or strides that do not fit, some of them known when it runs alone; expected "
    f"{LAYOUT}, contiguous channels, D {HEAD_DIMS}, k and v of one shape, q of their batch and "
    "channels and a multiple of their heads. Print the shapes before the compiled function."
)

Operand = tuple[str, str, int, tuple[int, ...], tuple[int, ...]]
"""Element type, kind of device, its index, shape and strides."""


def operand(tensor: Any) -> Operand:
    """The description of a tensor with its sizes as numbers, which a trace then depends on."""
    return (
        *_type_and_device(tensor),
        tuple([_number(size) for size in tensor.shape]),
        tuple([_number(step) for step in _steps(tensor)]),
    )


def _steps(tensor: Any) -> Any:
    """The strides that the kernels see: torch copies what is lazily negated before."""
    if torch.compiler.is_compiling() or not tensor.is_neg():
        return tensor.stride()
    view = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
    return view.clone().stride()


def constant_options(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Options as constants, and None for real numbers: they are checked, all of them are supported
    alike, and a trace may hold them as symbols."""
    return tuple(
        [
            None
            if value is None or isinstance(value, float)
            else value
            if isinstance(value, (bool, str))
            else _number(value)
            for value in options
        ]
    )


def support_by_shape(q: Operand, k: Operand, v: Operand, options: tuple[Any, ...]) -> Any:
    """Whether attention would run on tensors of this description, and if not, why."""
    views = [
        _openvc.tensor_from_pointer(
            _PLACEHOLDER_ADDRESS,
            ELEMENTS[dtype],
            _openvc.DeviceType.cuda if device == "cuda" else _openvc.DeviceType.cpu,
            index,
            shape,
            strides,
        )
        for dtype, device, index, shape, strides in (q, k, v)
    ]
    complete = [
        default if value is None else value
        for value, default in zip(options, _DEFAULT_OPTIONS, strict=True)
    ]
    return _openvc.is_supported(*views, cached_options(*complete))


# Compilers call this function while they trace, instead of looking into it.
_ask = torch.compiler.assume_constant_result(support_by_shape)


def traced_support(q: Any, k: Any, v: Any, options: tuple[Any, ...]) -> Any:
    """An answer that holds for all sizes that a trace stands for.

    The comparisons of sizes become conditions of the trace. Where they hold, the numbers of tokens,
    heads and batch items do not matter, and stay free. Sizes that are known when it runs alone, as
    those of x[mask], count as fitting where they may.
    """
    if _fit(q, k, v):
        describe = _smallest
    elif _has_unknown_sizes(q, k, v):
        return False, _DO_NOT_FIT
    else:
        describe = operand
    return _ask(*[describe(x) for x in (q, k, v)], constant_options(options))


def size_refusal(q: Any, k: Any, v: Any) -> str:
    """Why a call would be refused on any device for its shapes and strides; empty if it is not."""
    describe = operand
    if has_symbols(q, k, v):
        if _fit(q, k, v):
            describe = _smallest
        elif _has_unknown_sizes(q, k, v):
            return _DO_NOT_FIT
    on_cpu = [(dtype, "cpu", 0, *sizes) for dtype, _, _, *sizes in map(describe, (q, k, v))]
    return str(support_by_shape(*on_cpu, _DEFAULT_OPTIONS)[1])


@torch.compiler.assume_constant_result
def _must_trace_all() -> bool:
    """Whether a compiler takes the whole function or raises: fullgraph=True, torch.export."""
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        translator = InstructionTranslator.current_tx()
        return bool(translator.one_graph or translator.error_on_graph_break)
    except Exception:  # no compiler is at work, or one of another version
        return False


def leave_trace(name: str, kind: str) -> None:
    """Hands what no compiler can look into back to Python, or refuses it where that is not wanted."""
    if _must_trace_all():
        raise TypeError(
            f"{name}: {kind}, which compilers of torch cannot look into; expected a torch tensor or "
            f"a numpy array. Use torch.from_dlpack({name}) before the compiled function."
        )
    torch._dynamo.graph_break()


def _fit(q: Any, k: Any, v: Any) -> bool:
    """Whether shapes and strides of three tensors of one rank are such that their other sizes do
    not matter. What no trace can know is no reason against it: the kernel looks at it."""
    # Loaded wherever there are symbols, and slow to import elsewhere.
    from torch.fx.experimental import symbolic_shapes

    holds = getattr(symbolic_shapes, "guard_or_true", bool)
    is_known = getattr(symbolic_shapes, "guard_or_false", bool)
    channels = q.shape[-1]
    return (
        all([holds(size >= 1) for x in (q, k, v) for size in x.shape])
        and is_known(channels <= LARGEST_HEAD_DIM)
        and is_known(channels % HEAD_DIM_STEP == 0)
        and all([holds(x.shape[-1] == channels) for x in (k, v)])
        and all([holds(x.stride()[-1] == 1) for x in (q, k, v)])
        and all([holds(q.shape[axis] == k.shape[axis]) for axis in range(q.dim() - 3)])
        and holds(q.shape[-2] % k.shape[-2] == 0)
        and all([holds(a == b) for a, b in zip(k.shape, v.shape, strict=True)])
    )


def same_size(a: Any, b: Any) -> bool:
    """Whether sizes of a trace are the same; true where no trace can know."""
    from torch.fx.experimental import symbolic_shapes

    return bool(getattr(symbolic_shapes, "guard_or_true", bool)(a == b))


def _has_unknown_sizes(q: Any, k: Any, v: Any) -> bool:
    """Whether a trace has sizes that depend on the numbers of other tensors."""
    from torch.fx.experimental import symbolic_shapes

    depends = getattr(symbolic_shapes, "has_free_unbacked_symbols", None)
    return depends is not None and any([depends(x) for x in (q, k, v)])


def has_symbols(*tensors: Any) -> bool:
    """Whether sizes are symbols of a trace."""
    return any(isinstance(size, torch.SymInt) for x in tensors for size in (*x.shape, *x.stride()))


def _smallest(tensor: Any) -> Operand:
    """The description of one token of one head. It stands for all tensors whose sizes _fit()."""
    channels = _number(LARGEST_HEAD_DIM)
    outer = tensor.dim() - 1
    return (
        *_type_and_device(tensor),
        (1,) * outer + (channels,),
        (channels,) * outer + (1,),
    )


def _number(size: Any) -> int:
    """A number as a constant. Compilers may trace any int as a symbol, and int() keeps it one."""
    return operator.index(size)


def _type_and_device(tensor: Any) -> tuple[str, str, int]:
    device = tensor.device
    return str(tensor.dtype).removeprefix("torch."), device.type, device.index or 0
