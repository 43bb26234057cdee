# SPDX-License-Identifier: BSD-3-Clause
"""What a torch tensor is besides its numbers: differentiated, or a wrapper without memory."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad


class Obstacle(NamedTuple):
    """Why a tensor cannot be used as it is, and what to do."""

    found: str
    expected: str
    advice: str  # {name} stands for the argument

    def text(self, name: str) -> str:
        return f"{name}: {self.found}; expected {self.expected}. {self.advice.format(name=name)}."


_DENSE = "a dense tensor"
_OUTSIDE = "Call it outside of the transformation"
_MEMORY = "a tensor whose numbers are in memory"
_PLAIN = "a tensor that nothing differentiates, because FP8 attention has no derivative"

_functorch = torch._C._functorch
_NAMES_EXIST = hasattr(torch.Tensor, "has_names")  # gone from newer versions


def derivative(tensor: Any) -> Obstacle | None:
    """What differentiates a tensor. The derivative of attention would be 0 in silence."""
    if torch.is_grad_enabled() and _requires_grad(tensor):
        return Obstacle(
            "requires grad",
            _PLAIN,
            "Call it under torch.no_grad() or torch.inference_mode(), or pass {name}.detach()",
        )
    if _has_tangent(tensor):
        return Obstacle(
            "carries a tangent of forward-mode differentiation",
            _PLAIN,
            "Call it under torch.inference_mode(), or pass "
            "torch.autograd.forward_ad.unpack_dual({name}).primal",
        )
    return None


def operator_derivative(tensor: Any) -> Obstacle | None:
    """derivative() for a tensor that meets the operator, which may record a backward to refuse it
    later. torch.func cannot record one."""
    wrapped = _functorch.is_functorch_wrapped_tensor(tensor)
    obstacle = derivative(tensor)
    return obstacle if wrapped or _has_tangent(tensor) else None


def _requires_grad(tensor: Any) -> bool:
    """Whether backward differentiates a tensor, or what a wrapper of torch.func holds."""
    if tensor.requires_grad:
        return True
    if torch.compiler.is_compiling():
        return False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
        if tensor.requires_grad:
            return True
    return False


def _has_tangent(tensor: Any) -> bool:
    """Whether a tensor is a dual number of forward_ad or torch.func.jvp, under any wrappers."""
    if torch.compiler.is_compiling():
        return forward_ad._current_level >= 0 and _may_have_traced_tangent(tensor)
    if forward_ad._current_level < 0 or not torch._C._is_fwd_grad_enabled():
        return False
    while True:
        # A batched tensor has no rule for the question, but what it wraps does.
        is_batched = _functorch.is_batchedtensor(tensor)
        if not is_batched and forward_ad.unpack_dual(tensor).tangent is not None:
            return True
        if not _functorch.is_functorch_wrapped_tensor(tensor):
            return False
        tensor = _functorch.get_unwrapped(tensor)


def _may_have_traced_tangent(tensor: Any) -> bool:
    """The same as far as a compiler's trace tells it: what is wrapped stays hidden there."""
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # a batched tensor
        return True


def unusual_kind(tensor: Any) -> Obstacle | None:
    """Kinds of tensors that no function of this package can take."""
    if tensor.is_nested:
        return Obstacle("a nested tensor", _DENSE, "Call it for each tensor of {name}.unbind()")
    if tensor.layout != torch.strided:
        return Obstacle(f"layout {tensor.layout}", _DENSE, "Use {name}.to_dense()")
    if tensor.is_quantized:
        return Obstacle(f"element type {tensor.dtype}", _DENSE, "Use {name}.dequantize()")
    if tensor.device.type == "meta":
        return Obstacle("a meta tensor, which holds no numbers", _MEMORY, "Pass a real tensor")
    if _is_distributed(tensor):
        return Obstacle(
            "a DTensor, which is spread over processes",
            "a tensor of one process",
            "Use {name}.to_local() if each process holds whole heads or batch items, and "
            "{name}.full_tensor() if not",
        )
    if torch.compiler.is_compiling():
        return None  # compilers refuse the rest
    if tensor._is_zerotensor():
        return Obstacle("a tensor of zeros without memory", _MEMORY, "Use {name}.clone()")
    if _NAMES_EXIST and tensor.has_names():
        return Obstacle(f"names {tensor.names}", "axes without names", "Use {name}.rename(None)")
    return None


def without_memory(tensor: Any) -> Obstacle | None:
    """Why the numbers of a tensor cannot be read at its address."""
    obstacle = unusual_kind(tensor)
    if obstacle is not None:
        return obstacle
    tensor = unwrapped(tensor)
    if _functorch.is_functorch_wrapped_tensor(tensor):
        return Obstacle("a wrapper of torch.func.vmap", _MEMORY, _OUTSIDE)
    if torch._is_functional_tensor(tensor):
        return Obstacle("a wrapper of torch.func.functionalize", _MEMORY, _OUTSIDE)
    if _is_fake(tensor):
        return Obstacle("a fake tensor, which holds no numbers", _MEMORY, "Pass a real tensor")
    if tensor.is_neg():
        return Obstacle("a lazily negated view", _MEMORY, "Use {name}.resolve_neg()")
    if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
        return Obstacle(
            f"a {type(tensor).__name__}, a subclass with operators of its own",
            _MEMORY,
            "Pass the plain tensor that it stands for",
        )
    return None


def unwrapped(tensor: Any) -> Any:
    """What torch.func has wrapped to follow derivatives. Where derivative() finds none, it is the
    same tensor; a batch of vmap is another, and stays."""
    while _functorch.is_functorch_wrapped_tensor(tensor) and not _functorch.is_batchedtensor(
        tensor
    ):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def unreadable(tensor: Any) -> Obstacle | None:
    """Why the numbers of a tensor cannot be copied."""
    obstacle = unusual_kind(tensor)
    if obstacle is None and _functorch.is_functorch_wrapped_tensor(tensor):
        obstacle = Obstacle("a wrapper of torch.func (vmap, grad, ...)", _MEMORY, _OUTSIDE)
    return obstacle or without_memory(tensor.resolve_neg() if tensor.is_neg() else tensor)


def require_number(name: str, tensor: Any) -> None:
    """Refuses a tensor in place of a number that would lose something when it becomes one."""
    obstacle = unusual_kind(tensor) or derivative(tensor)
    if obstacle is not None:
        raise ValueError(obstacle.text(name))
    if tensor.numel() != 1:
        raise ValueError(
            f"{name}: a tensor of shape {list(tensor.shape)}; expected one number. Pass a float."
        )


def _is_distributed(tensor: Any) -> bool:
    if type(tensor) is torch.Tensor:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _is_fake(tensor: Any) -> bool:
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)
