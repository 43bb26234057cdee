# SPDX-License-Identifier: BSD-3-Clause
"""Recording of the attention inputs of a torch model, for studies of error and speed."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from contextlib import ExitStack
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _safetensors
from ._checks import require_bool
from ._options import SCALES, is_softmax_scale
from ._warnings import warn_user

_FORMAT = "open_vc_attn capture 1"
_FILE_PATTERN = "step*_layer*.safetensors"

_folders_in_use: set[Path] = set()
_folders_lock = threading.Lock()


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
        if max_tokens is not None and not (_is_int(max_tokens) and max_tokens >= 1):
            raise ValueError(
                f"max_tokens: {max_tokens!r}; expected an int >= 1 or None. Use None for all tokens."
            )
        self._max_tokens = max_tokens
        self._step = -1 if module is not None else 0
        self._layer = 0
        self._calls = 0
        self._calls_before = self._files_before = 0  # this run
        self._path: list[str] = []
        self._warned_of_dropout = False
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
            causal: the last query sees all keys, each one before it one less, as in attention().
            softmax_scale: 1/sqrt(D) by default.
            masked: the call has a mask besides. It is not stored, only noted.

        Raises:
            TypeError, ValueError: an argument has the wrong type or value, or heads does not fit.
            FileExistsError: another recording wrote this file meanwhile.
        """
        import torch

        from ._sdpa_hook import operand_obstacle, untraced

        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, torch.Tensor):
                raise TypeError(
                    f"{name}: {type(x).__name__}; expected a torch tensor. "
                    f"Use torch.as_tensor({name})."
                )
        obstacle = operand_obstacle(q=q, k=k, v=v)
        if obstacle is not None:
            raise obstacle
        _check_shapes(q, k, v)
        require_bool("causal", causal)
        require_bool("masked", masked)
        if softmax_scale is not None:
            if isinstance(softmax_scale, bool) or not isinstance(softmax_scale, Real):
                raise TypeError(
                    f"softmax_scale: {softmax_scale!r}; expected a number or None. "
                    "Use None for 1/sqrt(D)."
                )
            if not is_softmax_scale(float(softmax_scale)):
                raise ValueError(
                    f"softmax_scale: {softmax_scale!r}; expected a number from {SCALES}. "
                    "Use None for 1/sqrt(D)."
                )
        with untraced():
            self._see(q, k, v, causal=causal, softmax_scale=softmax_scale, masked=masked)

    def _see(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        causal: bool,
        softmax_scale: float | None,
        masked: bool,
        dropout: float = 0.0,
        obstacle: str = "",
    ) -> None:
        """Counts a call, and records it if it is selected and nothing stands against it."""
        layer, self._layer = self._layer, self._layer + 1
        self._calls += 1
        if not (_selected(layer, self._layers) and _selected(self._step, self._steps)):
            return
        where = f"layer {layer}" + (f" ({self._path[-1]})" if self._path else "")
        if obstacle:
            warn_user(f"{where} is not recorded: {obstacle}")
            return
        lengths = q.shape[-2], k.shape[-2]
        cut = self._max_tokens is not None and self._max_tokens < max(lengths)
        if causal and cut and lengths[0] != lengths[1]:
            warn_user(
                f"{where} is not recorded: max_tokens={self._max_tokens} would shift the diagonal "
                f"of a causal call of {lengths[0]} queries and {lengths[1]} keys"
            )
            return
        self._check_heads(where, q=q, k=k, v=v)
        metadata = {
            "format": _FORMAT,
            "step": str(self._step),
            "layer": str(layer),
            "module": self._path[-1] if self._path else "",
            "causal": str(causal).lower(),
            "masked": str(masked).lower(),
            "softmax_scale": repr(
                q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)
            ),
            "shapes_bhsd": " ".join("x".join(map(str, x.shape)) for x in (q, k, v)),
            "heads": "all" if self._heads is None else ",".join(map(str, sorted(self._heads))),
            "stage": "as passed to scaled_dot_product_attention",
        }
        tensors = {name: self._stored_form(x) for name, x in (("q", q), ("k", k), ("v", v))}
        metadata["layout"] = "SHD" if tensors["q"].dim() == 3 else "BSHD"
        if dropout:
            metadata["note"] = f"recorded without the dropout_p={dropout} of the call"
            self._warn_of_dropout(where, dropout)
        path = self._out / f"step{self._step:03d}_layer{layer:03d}.safetensors"
        _safetensors.save(path, tensors, metadata, overwrite=False)
        self.files.append(path)

    def _warn_of_dropout(self, where: str, dropout: float) -> None:
        if self._warned_of_dropout:
            return
        self._warned_of_dropout = True
        warn_user(
            f"{where} is recorded without its dropout_p={dropout}, like others that follow: "
            "attention() has no dropout; call eval() of the model before to record what it infers"
        )

    def __enter__(self) -> Recording:
        if self._cleanup is not None:
            raise RuntimeError("this recording is running already")
        from . import _sdpa_hook

        with ExitStack() as stack:
            self._claim_folder(stack)
            stack.enter_context(_sdpa_hook.eager())
            hook = _sdpa_hook.SdpaHook(self._see)
            if self._module is None:
                stack.enter_context(hook)
            else:
                _sdpa_hook.follow(self._module, hook, self.next_step, self._path, stack)
            self._calls_before, self._files_before = self._calls, len(self.files)
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
            if kind is None and len(self.files) == self._files_before:
                warn_user(self._why_nothing())

    def _claim_folder(self, stack: ExitStack) -> None:
        """Refuses a folder whose files this recording could meet; `stack` gets what frees it."""
        folder = self._out.resolve()
        with _folders_lock:
            if folder in _folders_in_use:
                raise FileExistsError(
                    f"out={str(self._out)!r}: another recording is writing to this folder; give "
                    "each one its own"
                )
            own = {path.name for path in self.files}
            others = sorted({path.name for path in folder.glob(_FILE_PATTERN)} - own)
            if others:
                raise FileExistsError(
                    f"out={str(self._out)!r}: this folder holds files of another recording, such "
                    f"as {others[0]}; give a new folder, or remove them"
                )
            _folders_in_use.add(folder)
        stack.callback(_folders_in_use.discard, folder)

    def _why_nothing(self) -> str:
        calls = self._calls - self._calls_before
        if calls == 0:
            return (
                "nothing was recorded: no call of scaled_dot_product_attention was seen; models "
                "that use other attention functions can call record()"
            )
        return (
            "nothing was recorded: of the calls of scaled_dot_product_attention that were seen "
            f"({calls}, up to step {self._step}), none is selected by layers and steps and can be "
            "recorded"
        )

    def _check_heads(self, where: str, **tensors: Any) -> None:
        if self._heads is None:
            return
        largest = max(self._heads)
        for name, x in tensors.items():
            count = x.shape[-3] if x.dim() > 2 else 1
            if largest >= count:
                raise ValueError(
                    f"heads: {largest}; expected ints from 0 to {count - 1}: {name} of {where} has "
                    f"{count} head{'' if count == 1 else 's'}. Leave the others out, or choose "
                    "layers that have them."
                )

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

    Masks and dropout are not stored, only noted, with a warning for dropout. A call with is_causal and fewer or more queries than keys is
    left out with a warning: torch lets the first query see the first key alone, attention() the
    last query see all. So is one with a scale or an
    element type that attention() does not take, and one whose tensors have no numbers in memory
    (fake and meta tensors, wrappers of torch.func, nested and distributed ones).
    A recording of nothing warns, too.

    No file is ever overwritten: `out` must not hold files of another recording, finished or
    running. Processes of one job need a folder each.

    Args:
        module: the model whose forward calls are recorded; or any function, which is called.
        *args, **kwargs: arguments with which to call `module` at once.
        out: folder of the files; created if missing.
        layers: indices of the calls to record, counted within a step from 0; None takes all. A
            model with cross-attention makes two calls per block.
        steps: indices of the steps to record, counted from 0.
        max_tokens: keep only the first tokens of every sequence.
        heads: indices of the heads to keep. Every recorded call must have them.

    Returns:
        The Recording: with ``files``, and ``result`` if `module` was called.

    Raises:
        TypeError, ValueError: a selection has the wrong type or value.
        FileExistsError: `out` holds files of another recording, or one is writing there; known
            before the model runs.
        ImportError: torch is not installed.
        OSError: a file cannot be written.
    """
    import torch

    is_module = isinstance(module, torch.nn.Module)
    if not (module is None or callable(module)):
        raise TypeError(
            f"module: {type(module).__name__}; expected a torch module or a function. "
            "Pass the model itself."
        )
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
            raise TypeError(
                f"module: None, with the arguments {', '.join(kwargs)}; expected something to call "
                "with them. Pass the model first."
            )
        with recording:
            recording.result = module(*args, **kwargs)
    return recording


def _check_shapes(q: Any, k: Any, v: Any) -> None:
    """Refuses what load_capture() or attention() could not make a call of."""
    if q.dim() == k.dim() == v.dim() and k.shape == v.shape and q.shape[-1] == k.shape[-1]:
        return
    raise ValueError(
        f"q, k, v: shapes {', '.join(str([*x.shape]) for x in (q, k, v))}; expected [B, H, S, D], k "
        "and v of one shape, q of their rank and D. Give all three the same axes."
    )


def _indices(name: str, values: Collection[int] | None) -> frozenset[int] | None:
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Collection):
        raise TypeError(
            f"{name}: {values!r}; expected a collection of ints or None. "
            "Pass a list, or None for all."
        )
    if not values:
        raise ValueError(f"{name}: empty; expected at least one int >= 0. Use None for all.")
    wrong = [value for value in values if not (_is_int(value) and value >= 0)]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]!r}; expected ints >= 0. Count them from 0.")
    return frozenset(values)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _selected(index: int, wanted: frozenset[int] | None) -> bool:
    return wanted is None or index in wanted
