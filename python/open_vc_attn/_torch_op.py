# SPDX-License-Identifier: BSD-3-Clause
"""The torch operators ``open_vc_attn::attention`` and ``open_vc_attn::attention_with_lse``.

They are functional: nothing is mutated, results are fresh and contiguous. Importing this module
registers them (_torch_import.py).

torch's dispatcher takes longer than the rest of a short call, so attention() leaves the operators
out where nothing of torch would see the call (TorchArrays.can_skip_dispatcher).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._call import lse_shape, run_attention
from ._frameworks import require_agreement
from ._key_selection import require_selection
from ._native_options import OPTION_COUNT, cached_options
from ._numerics import schema_arguments
from ._sequences import Sequences, require_sequences
from ._torch_arrays import TORCH
from ._torch_state import operator_derivative
from ._torch_support import size_refusal

AVAILABLE = hasattr(torch.library, "register_fake")
"""Operators with fake kernels need torch 2.4; older versions call the library directly."""

_NAMESPACE = "open_vc_attn"
_KEPT = "_open_vc_attn_library"
_TENSOR = "_scale_tensor"  # ends the names of the operators whose scale is a tensor
# The scale is a Scalar, because a float of a schema cannot be a symbol of a compiler.
# What came later is at the end and has defaults: exported models without it can be loaded.
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, bool causal, Scalar? softmax_scale, str key_order, "
    + schema_arguments()
    + ", Tensor? key_lengths=None, Tensor? key_mask=None"
    + ", Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None"
    + ", SymInt max_seqlen_q=0, SymInt max_seqlen_k=0"
)

_NOT_PACKED = Sequences(None, None, 0, 0)
_TOKENS = (None, None, *_NOT_PACKED)  # the defaults of what is behind the options

_NAMES = ("q", "k", "v", "causal", "softmax_scale")
_SCALE = _NAMES.index("softmax_scale")


def call(
    q: Any,
    k: Any,
    v: Any,
    options: tuple[Any, ...],
    return_lse: bool,
    key_lengths: Any = None,
    key_mask: Any = None,
    sequences: Sequences = _NOT_PACKED,
) -> Any:
    """attention() on checked torch tensors, through the operator; `options` of call_options()."""
    operators = torch.ops.open_vc_attn
    operator = operators.attention_with_lse if return_lse else operators.attention
    return operator(q, k, v, *options, key_lengths, key_mask, *sequences)


def _split(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, Any, Sequences | None]:
    """Options, key_lengths, key_mask and sequences. torch leaves out what has its default value."""
    found = arguments[OPTION_COUNT:]
    key_lengths, key_mask, *sequences = (*found, *_TOKENS[len(found) :])
    packed = Sequences(*sequences)
    boundaries = (packed.cu_seqlens_q, packed.cu_seqlens_k)
    if all([x is None for x in boundaries]):
        return arguments[:OPTION_COUNT], key_lengths, key_mask, None
    if any([x is None for x in boundaries]):
        raise TypeError(
            "cu_seqlens_q, cu_seqlens_k: one of them; expected both, or none. Pass the other one."
        )
    if key_lengths is not None or key_mask is not None:
        raise NotImplementedError(
            "key_lengths, key_mask: together with cu_seqlens_q; expected one of them. Leave the keys "
            "that do not take part out of k and v."
        )
    return arguments[:OPTION_COUNT], None, None, packed


def _require_operands(q: Any, k: Any, v: Any) -> None:
    """What attention() has checked, for those who call an operator themselves."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        TORCH.check_element_type(name, tensor)
    require_agreement(TORCH, q, k, v)


def _attention(q: Any, k: Any, v: Any, *arguments: Any) -> Any:
    return _run(q, k, v, arguments, False)[0]


def _attention_with_lse(q: Any, k: Any, v: Any, *arguments: Any) -> tuple[Any, Any]:
    return _run(q, k, v, arguments, True)


def _run(q: Any, k: Any, v: Any, arguments: tuple[Any, ...], return_lse: bool) -> tuple[Any, Any]:
    _require_operands(q, k, v)
    options, *tokens = _split(arguments)
    return run_attention(TORCH, q, k, v, cached_options(*options), return_lse, *tokens)


def _fake_attention(q: Any, k: Any, v: Any, *arguments: Any) -> Any:
    _check(q, k, v, arguments)
    return q.new_empty(q.shape)


def _fake_attention_with_lse(q: Any, k: Any, v: Any, *arguments: Any) -> tuple[Any, Any]:
    _check(q, k, v, arguments)
    return q.new_empty(q.shape), q.new_empty(lse_shape(q.shape), dtype=torch.float32)


def _check(q: Any, k: Any, v: Any, arguments: tuple[Any, ...]) -> None:
    """Refuses at once what the call would refuse. A trace may be for another machine's devices."""
    _require_operands(q, k, v)
    (causal, *_), key_lengths, key_mask, sequences = _split(arguments)
    require_selection(TORCH, q, k, causal, key_lengths, key_mask)
    if sequences is not None:
        require_sequences(TORCH, q, k, sequences)
    refusal = size_refusal(q, k, v)
    if refusal:
        raise ValueError(refusal)


def _no_backward(*_: Any) -> Any:
    raise NotImplementedError(
        "q, k, v: a gradient is asked for; expected none, FP8 attention has no backward. "
        "Call it under torch.no_grad(), or pass q.detach(), k.detach() and v.detach()."
    )


def _autograd_kernel(operator: Any) -> Callable[..., Any]:
    """What stands in front of the kernels wherever torch differentiates.

    Without it torch would treat the outputs as constants. Gradients are refused where they are
    asked for; a forward pass alone may meet parameters. Tangents would be there at once.
    """

    def below(keyset: Any, args: tuple[Any, ...]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    class WithoutBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keyset: Any, *args: Any) -> Any:
            return below(keyset, args)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return _no_backward()

    def kernel(keyset: Any, *args: Any) -> Any:
        if isinstance(args[_SCALE], torch.SymFloat):
            return _with_scale_tensor(operator, args)
        named = [(n, x) for n, x in zip(_NAMES, args, strict=False) if isinstance(x, torch.Tensor)]
        for name, tensor in named:
            obstacle = operator_derivative(tensor)
            if obstacle is not None:
                raise NotImplementedError(obstacle.text(name))
        if torch.is_grad_enabled() and any(tensor.requires_grad for _, tensor in named):
            return WithoutBackward.apply(keyset, *args)
        return below(keyset, args)

    return kernel


def _with_scale_tensor(operator: Any, args: tuple[Any, ...]) -> Any:
    """The call with a scale that changes between calls of a compiled function.

    Compilers keep a symbol that multiplies a tensor, and fix one that an operator takes as a
    number: they would compile again for each.
    """
    with_tensor = getattr(
        torch.ops.open_vc_attn, operator._schema.name.partition("::")[2] + _TENSOR
    )
    scale = torch.ones((), dtype=torch.float64, device="cpu") * args[_SCALE]
    return with_tensor(*args[:_SCALE], scale, *args[_SCALE + 1 :])


def _with_scale_number(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return kernel(*args[:_SCALE], args[_SCALE].item(), *args[_SCALE + 1 :])

    return call


def _batching_rule(operator: Any, fake: Callable[..., Any]) -> Callable[..., Any]:
    """What vmap does: one call for each item.

    torch would do the same by itself, but for a warning, and an error where there are no items.
    """

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        def item(index: int) -> list[Any]:
            return [
                x if dim is None else x.select(dim, index)
                for x, dim in zip(args, in_dims, strict=True)
            ]

        results = [operator(*item(i)) for i in range(info.batch_size)]
        if results:
            stacked = [torch.stack(parts) for parts in zip(*map(_as_tuple, results), strict=True)]
        else:
            one = _as_tuple(fake(*map(_without_axis, args, in_dims)))
            stacked = [x.new_empty((0, *x.shape), device=args[0].device) for x in one]
        return (tuple(stacked), (0, 0)) if len(stacked) > 1 else (stacked[0], 0)

    return rule


def _without_axis(value: Any, axis: int | None) -> Any:
    """An argument of one item where there is none: its sizes without memory."""
    if not isinstance(value, torch.Tensor):
        return value
    shape = [*value.shape]
    if axis is not None:
        del shape[axis]
    return value.new_empty(shape, device="meta")


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _register() -> torch.library.Library:
    library = torch.library.Library(_NAMESPACE, "DEF")
    # Inductor must not choose another layout of the inputs: the channel axis has to stay
    # contiguous.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    scale_tensor = _ARGUMENTS.replace("Scalar? softmax_scale", "Tensor softmax_scale")
    for result, results, kernel, fake in (
        ("attention", "Tensor", _attention, _fake_attention),
        ("attention_with_lse", "(Tensor, Tensor)", _attention_with_lse, _fake_attention_with_lse),
    ):
        for name, arguments, function in (
            (result, _ARGUMENTS, kernel),
            (result + _TENSOR, scale_tensor, _with_scale_number(kernel)),
        ):
            library.define(f"{name}({arguments}) -> {results}", tags=tags)
            for device in ("CPU", "CUDA"):
                library.impl(name, function, device)
            torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=library)
            operator = getattr(torch.ops.open_vc_attn, name).default
            library.impl(name, _autograd_kernel(operator), "Autograd", with_keyset=True)
            if hasattr(torch.library, "register_vmap"):  # torch 2.5
                rule = _batching_rule(operator, fake)
                torch.library.register_vmap(f"{_NAMESPACE}::{name}", rule, lib=library)
    return library


def _registered() -> torch.library.Library:
    """The operators, which live as long as torch: compiled models hold on to them.

    torch keeps them, because this module may be removed from sys.modules and imported again.
    """
    namespace = torch.ops.open_vc_attn
    if _KEPT not in vars(namespace):
        setattr(namespace, _KEPT, _register())
    return vars(namespace)[_KEPT]


_LIBRARY = _registered() if AVAILABLE else None
