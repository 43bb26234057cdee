# SPDX-License-Identifier: BSD-3-Clause
"""Preparation and attention as two calls, so that quantised inputs can be kept and reused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from . import _openvc
from ._arrays import Arrays, OutputSpec
from ._call import LSE_DTYPE, lse_shape, warn_about_layout
from ._checks import require_bool
from ._frameworks import check_operands
from ._native_options import native_options
from ._numerics import Budget, NumericsLike
from ._options import HeadPlan, KeyOrder, as_repair_share
from ._recipe import LayerRecipe, numerics_of_call
from ._threads import get_num_threads

CallOptions = tuple[Any, Any, Any, Any, NumericsLike]
"""Arguments of native_options()."""


class Shapes(NamedTuple):
    """Shapes of the tensors that a PreparedFP8 was made from."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class PreparedFP8:
    """Quantised Q, K and V, from prepare_fp8() or prepare_v_repair().

    Immutable and independent of the tensors that it was made from: prepare again when they change.
    Any number of threads may use it at the same time, on any CUDA streams of its device: other
    streams than that of the preparation wait for it. A CUDA graph that uses it has to be gone
    before it is.
    """

    shapes: Shapes
    """Shapes of q, k and v: [S, H, D] or [B, S, H, D]."""

    dtype: Any
    """Element type of the inputs and of the output, as q's framework names it."""

    device: Any
    """Device of the inputs and of the output, as q's framework names it."""

    _native: _openvc.Prepared = field()
    _arrays: Arrays = field()
    _spec: OutputSpec = field()

    @property
    def plans(self) -> list[HeadPlan]:
        """What was decided for each head: batch * H plans, heads of one batch item together."""
        return [
            HeadPlan(
                extra_steps=plan.extra_steps,
                rotated=plan.rotated,
                score_exponent=plan.score_exponent,
                predicted_score_error=plan.predicted_score_error,
            )
            for plan in self._native.plans
        ]

    @property
    def repair_rows(self) -> int:
        """Tokens per head whose rounding of V is repaired; 0 without repair."""
        return self._native.repair_rows

    @property
    def has_lse(self) -> bool:
        """Whether the log-sum-exp can be asked for."""
        return self._native.has_log_sum_exp

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._native.bytes

    def _sections(self) -> dict[str, Any]:
        """NumPy copies of the quantised arrays, for tests. Their layout may change."""
        import numpy

        types = {"float32": numpy.float32, "bfloat16": numpy.uint16}  # NumPy has no bfloat16
        return {
            name: numpy.frombuffer(data, types.get(kind, numpy.uint8)).reshape(shape)
            for name, kind, shape, data in self._native.sections()
        }

    def __repr__(self) -> str:
        return (
            f"PreparedFP8(q={list(self.shapes.q)}, k={list(self.shapes.k)}, dtype={self.dtype}, "
            f"device={self.device}, repair_rows={self.repair_rows}, has_lse={self.has_lse}, "
            f"nbytes={self.nbytes})"
        )


def prepare_fp8(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    with_lse: bool = False,
    key_order: KeyOrder = "mid_window",
    budget: Budget | None = None,
    numerics: NumericsLike = None,
    recipe: LayerRecipe | None = None,
) -> PreparedFP8:
    """Quantises Q, K and V for attention_fp8().

    Args:
        q, k, v, causal, softmax_scale, key_order, budget, numerics, recipe: as for attention().
            They are settled here, because quantisation depends on them. All keys take part: pass
            those of k and v that are to, or call attention(), which selects keys.
        with_lse: also keep what attention_fp8(..., return_lse=True) needs.

    Raises:
        As attention().
    """
    options = causal, softmax_scale, key_order, budget, numerics
    return _prepare(q, k, v, None, with_lse, options, recipe)


def prepare_v_repair(
    q: Any,
    k: Any,
    v: Any,
    *,
    budget: float,
    causal: bool = False,
    softmax_scale: float | None = None,
    with_lse: bool = False,
    key_order: KeyOrder = "mid_window",
    numerics: NumericsLike = None,
) -> PreparedFP8:
    """Quantises Q, K and V with V residual repair (Open-VC), for attention_v_repair().

    The quantised residuals of the tokens of V whose rounding hurts the output most are added back
    as extra key/value rows outside the denominator.

    Args:
        budget: share of the tokens of a head to repair, 0 <= budget < 1; round(budget * Skv)
            tokens. 0 equals prepare_fp8() bit for bit.
        q, k, v, causal, softmax_scale, with_lse, key_order, numerics: as for prepare_fp8().

    Raises:
        As attention(); ValueError for a budget outside its range.
    """
    options = causal, softmax_scale, key_order, None, numerics
    return _prepare(q, k, v, as_repair_share(budget), with_lse, options)


def attention_fp8(prepared: PreparedFP8, *, return_lse: bool = False) -> Any:
    """Attention on quantised inputs.

    Args:
        prepared: from prepare_fp8() or prepare_v_repair().
        return_lse: also return the LSE; needs inputs prepared with `with_lse=True`.

    Returns:
        As attention().

    Raises:
        TypeError: `prepared` is not a PreparedFP8.
        ValueError: `return_lse`, but the inputs were prepared without it.
        MemoryError, RuntimeError: as attention().
    """
    if not isinstance(prepared, PreparedFP8):
        raise TypeError(
            f"prepared: {type(prepared).__name__}; expected a PreparedFP8. Make one with "
            "prepare_fp8(q, k, v) or prepare_v_repair(q, k, v, budget=...)."
        )
    require_bool("return_lse", return_lse)
    if return_lse and not prepared.has_lse:
        raise ValueError(
            "return_lse: True, but the inputs were prepared without it; expected inputs prepared "
            "for it. Pass with_lse=True to the preparation."
        )
    return prepared._arrays.call_untraced(_run, prepared, return_lse)


def attention_v_repair(prepared: PreparedFP8, *, return_lse: bool = False) -> Any:
    """attention_fp8() under the reference's name for inputs from prepare_v_repair()."""
    return attention_fp8(prepared, return_lse=return_lse)


def _prepare(
    q: Any,
    k: Any,
    v: Any,
    repair: float | None,
    with_lse: bool,
    options: CallOptions,
    recipe: LayerRecipe | None = None,
) -> PreparedFP8:
    arrays, q, k, v = check_operands(q, k, v)
    require_bool("with_lse", with_lse)
    if recipe is not None:
        *call, budget, numerics = options
        options = (*call, None, numerics_of_call(recipe, q, budget, numerics))
    prepared: PreparedFP8 = arrays.call_untraced(
        _quantize, arrays, q, k, v, repair, with_lse, options
    )
    return prepared


def _quantize(
    arrays: Arrays,
    q: Any,
    k: Any,
    v: Any,
    repair: float | None,
    with_lse: bool,
    options: CallOptions,
) -> PreparedFP8:
    spec = arrays.output_spec(q)
    views = arrays.view("q", q), arrays.view("k", k), arrays.view("v", v)
    shapes = Shapes(*[view.array_shape for view in views])
    warn_about_layout(shapes.q)
    native = _openvc.prepare(
        *views,
        repair,
        native_options(*options),
        with_lse,
        get_num_threads(),
        *arrays.execution(spec),
    )
    return PreparedFP8(
        shapes=shapes,
        dtype=arrays.dtype(q),
        device=spec.device,
        _native=native,
        _arrays=arrays,
        _spec=spec,
    )


def _run(prepared: PreparedFP8, return_lse: bool) -> Any:
    arrays, spec, shape = prepared._arrays, prepared._spec, prepared.shapes.q
    out, _ = arrays.empty(shape, spec.dtype, spec)
    lse, lse_address = arrays.empty(lse_shape(shape), LSE_DTYPE, spec) if return_lse else (None, 0)
    stream, _ = arrays.execution(spec)
    _openvc.attention_prepared(
        prepared._native,
        arrays.view("out", out),
        lse_address,
        get_num_threads(),
        stream,
        arrays.record_use,
    )
    out = arrays.wrap_result(out, spec)
    return (out, arrays.wrap_result(lse, spec)) if return_lse else out
