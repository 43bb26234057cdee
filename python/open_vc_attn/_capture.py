# SPDX-License-Identifier: BSD-3-Clause
"""Recording of the attention inputs of a torch model, for studies of error and speed."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from . import _safetensors

_FORMAT = "open_vc_attn capture 1"


class Capture(NamedTuple):
    """One recorded attention call, from load_capture()."""

    q: Any
    """Torch tensor, [S, H, D] or [B, S, H, D], like k and v."""
    k: Any
    v: Any
    causal: bool
    softmax_scale: float
    metadata: dict[str, str]
    """Everything else that the file says."""


class Recording:
    """A recording of scaled_dot_product_attention calls; see capture().

    As a context manager it records the calls of the thread that entered it.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        module: Any = None,
        layers: Collection[int] | None = None,
        steps: Collection[int] | None = None,
        max_tokens: int | None = None,
        heads: Collection[int] | None = None,
    ) -> None:
        self.files: list[Path] = []
        """Files written so far."""
        self.result: Any = None
        """What the called model or function returned."""
        self._out = Path(out)
        self._module = module
        self._layers = _indices("layers", layers)
        self._steps = _indices("steps", steps)
        self._heads = _indices("heads", heads)
        if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
            raise ValueError(f"max_tokens must be an int >= 1 or None, not {max_tokens!r}")
        self._max_tokens = max_tokens
        self._step = -1 if module is not None else 0
        self._layer = 0
        self._path: list[str] = []
        self._cleanup: ExitStack | None = None

    def next_step(self) -> None:
        """Starts the next denoising step: layers count from 0 again.

        Only needed without a module, whose forward calls count as steps by themselves.
        """
        self._step += 1
        self._layer = 0

    def record(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        causal: bool = False,
        softmax_scale: float | None = None,
        masked: bool = False,
    ) -> None:
        """Records one call by hand, for models that do not use scaled_dot_product_attention.

        Args:
            q, k, v: torch tensors, [B, H, S, D] as scaled_dot_product_attention takes them.
            causal, softmax_scale: of the call; the scale is 1/sqrt(D) by default.
            masked: the call has a mask besides. It is not stored, only noted.
        """
        layer, self._layer = self._layer, self._layer + 1
        if not (_selected(layer, self._layers) and _selected(self._step, self._steps)):
            return
        metadata = {
            "format": _FORMAT,
            "step": str(self._step),
            "layer": str(layer),
            "module": self._path[-1] if self._path else "",
            "causal": str(causal).lower(),
            "masked": str(masked).lower(),
            "softmax_scale": repr(float(softmax_scale or q.shape[-1] ** -0.5)),
            "shapes_bhsd": " ".join("x".join(map(str, x.shape)) for x in (q, k, v)),
            "heads": "all" if self._heads is None else ",".join(map(str, sorted(self._heads))),
            "stage": "as passed to scaled_dot_product_attention",
        }
        tensors = {name: self._stored_form(x) for name, x in (("q", q), ("k", k), ("v", v))}
        metadata["layout"] = "SHD" if tensors["q"].dim() == 3 else "BSHD"
        path = self._out / f"step{self._step:03d}_layer{layer:03d}.safetensors"
        _safetensors.save(path, tensors, metadata)
        self.files.append(path)

    def __enter__(self) -> Recording:
        if self._cleanup is not None:
            raise RuntimeError("this recording is running already")
        from . import _sdpa_hook

        with ExitStack() as stack:
            stack.enter_context(_sdpa_hook.eager())
            if self._module is None:
                stack.enter_context(_sdpa_hook.SdpaHook(self.record))
            else:
                _sdpa_hook.follow(self._module, self, self._path, stack)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack, self._cleanup = self._cleanup, None
        if stack is not None:
            stack.__exit__(kind, error, trace)

    def _stored_form(self, x: Any) -> Any:
        """[B, H, S, D] (or fewer axes) as [S, H, D] or [B, S, H, D] with the selected parts."""
        x = x.detach()
        while x.dim() < 4:
            x = x.unsqueeze(0)
        x = x.flatten(0, -4).transpose(1, 2)
        if self._max_tokens is not None:
            x = x[:, : self._max_tokens]
        if self._heads is not None:
            x = x[:, :, sorted(self._heads)]
        return x[0] if x.shape[0] == 1 else x


def capture(
    module: Any = None,
    /,
    *args: Any,
    out: str | os.PathLike[str],
    layers: Collection[int] | None = None,
    steps: Collection[int] | None = None,
    max_tokens: int | None = None,
    heads: Collection[int] | None = None,
    **kwargs: Any,
) -> Recording:
    """Records Q, K and V of the scaled_dot_product_attention calls of a torch model.

    Each recorded call becomes a file ``step<step>_layer<layer>.safetensors`` in `out` with the
    tensors q, k and v ([S, H, D], or [B, S, H, D] if B > 1; as the attention call gets them, which
    is after norms and rotary embedding) and metadata. Three forms:

        with capture(transformer, out="captures", layers=[0, 20], steps=[10]) as recording:
            pipeline(prompt)             # every forward call of `transformer` is one step

        capture(transformer, latents, timestep, out="captures")    # one call, recorded

        with capture(out="captures") as recording:                 # all calls of this thread
            anything()

    Only calls of torch.nn.functional.scaled_dot_product_attention itself are seen; a model that
    uses other attention functions can call ``recording.record(q, k, v)``. Compiled modules run
    uncompiled meanwhile.

    Args:
        module: the model whose forward calls are recorded; or any function, which is called.
        *args, **kwargs: arguments with which to call `module` at once.
        out: folder of the files; created if missing.
        layers: indices of the calls to record, counted within a step from 0. A model with cross-
            attention makes two calls per block.
        steps: indices of the steps to record, counted from 0.
        max_tokens: keep only the first tokens of every sequence.
        heads: indices of the heads to keep.

    Returns:
        The Recording: with ``files``, and ``result`` if `module` was called.

    Raises:
        TypeError, ValueError: a selection has the wrong type or value.
        ImportError: torch is not installed.
        OSError: a file cannot be written.
    """
    import torch

    is_module = isinstance(module, torch.nn.Module)
    if not (module is None or callable(module)):
        raise TypeError(f"module must be a torch module or callable, not {type(module).__name__}")
    recording = Recording(
        out,
        module=module if is_module else None,
        layers=layers,
        steps=steps,
        max_tokens=max_tokens,
        heads=heads,
    )
    if args or kwargs or not (module is None or is_module):
        if module is None:
            raise TypeError(f"capture() got arguments {', '.join(kwargs)} but nothing to call")
        with recording:
            recording.result = module(*args, **kwargs)
    return recording


def load_capture(path: str | os.PathLike[str]) -> Capture:
    """Reads a file of capture(), or any safetensors file with tensors q, k and v.

    Metadata "layout" HSD or BHSD stands for heads before tokens. The softmax scale is 1/sqrt(D)
    and the call not causal unless the metadata say otherwise.

    Raises:
        ValueError: the file is malformed or lacks a tensor.
        ImportError: torch is not installed.
        OSError: the file cannot be read.
    """
    tensors, metadata = _safetensors.load(path)
    missing = [name for name in "qkv" if name not in tensors]
    if missing:
        raise ValueError(f"{path}: has no tensor {', '.join(missing)}, only {', '.join(tensors)}")
    q, k, v = (tensors[name].torch() for name in "qkv")
    if metadata.get("layout") in ("HSD", "BHSD"):
        q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
    scale = metadata.get("softmax_scale")
    return Capture(
        q,
        k,
        v,
        causal=metadata.get("causal") == "true",
        softmax_scale=q.shape[-1] ** -0.5 if scale is None else float(scale),
        metadata=metadata,
    )


def _indices(name: str, values: Collection[int] | None) -> frozenset[int] | None:
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Collection):
        raise TypeError(f"{name} must be a collection of ints or None, not {values!r}")
    wrong = [value for value in values if not isinstance(value, int) or value < 0]
    if wrong:
        raise ValueError(f"{name} must hold ints >= 0, not {wrong[0]!r}")
    return frozenset(values)


def _selected(index: int, wanted: frozenset[int] | None) -> bool:
    return wanted is None or index in wanted
