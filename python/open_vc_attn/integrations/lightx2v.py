# SPDX-License-Identifier: BSD-3-Clause
"""LightX2V: the attention type ``open_vc``.

In the configuration of a model: ``"self_attn_1_type": "open_vc"`` (``"attn_type"`` for Hunyuan and
LTX-2). LightX2V has no plugins: ``python -m open_vc_attn.run --with lightx2v -m lightx2v.infer ...``,
or register() in a script. Policy and numeric options follow the environment; the layer and the step
are not known there.
"""

from __future__ import annotations

from typing import Any

from ._enum import VALUE
from ._framework import Framework

FRAMEWORK = Framework(
    title="LightX2V",
    module="lightx2v",
    distribution="",
    oldest="",
    switch='python -m open_vc_attn.run --with lightx2v ..., with "self_attn_1_type": "open_vc"',
)
REGISTER_AFTER = "lightx2v.common.ops.attn.template"

_WITHOUT_BATCH = 3  # axes of [T, H, D]


def register() -> None:
    """Makes "open_vc" known to LightX2V in this process."""
    from lightx2v.common.ops.attn.template import AttnWeightTemplate
    from lightx2v.utils.registry_factory import ATTN_WEIGHT_REGISTER

    if VALUE not in ATTN_WEIGHT_REGISTER:  # a second registration is an error there
        ATTN_WEIGHT_REGISTER(VALUE)(_attention_class(AttnWeightTemplate))


def _attention_class(template: Any) -> Any:
    from ._default import default_layer
    from ._dispatch import dispatch
    from ._native import sdpa

    layer = default_layer(model="lightx2v")

    class OpenVCWeight(template):  # type: ignore[misc] # its methods move weights, of which there are none
        """Attention of [T, H, D] or [B, S, H, D] as [T, H * D] or [B * S, H * D]."""

        def __init__(self) -> None:
            self.config: dict[str, Any] = {}

        def apply(
            self,
            q: Any,
            k: Any,
            v: Any,
            drop_rate: float = 0.0,
            attn_mask: Any = None,
            causal: bool = False,
            softmax_scale: float | None = None,
            **_: Any,
        ) -> Any:
            """As dense attention there: bounds of sequences are those of the batch, which the
            shape tells; other arguments are of sparse attention."""
            q, k, v = _batched(q, k, v)
            out = dispatch(
                layer,
                q,
                k,
                v,
                native=lambda: sdpa(
                    q,
                    k,
                    v,
                    mask=_as_bias(attn_mask, q),
                    dropout=drop_rate,
                    causal=causal,
                    scale=softmax_scale,
                ),
                mask=attn_mask,
                dropout=drop_rate,
                causal=causal,
                scale=softmax_scale,
            )
            return out.flatten(-2).flatten(0, 1)

        def apply_with_lse(self, q: Any, k: Any, v: Any, softmax_scale: float | None = None) -> Any:
            """A part of a ring, and its LSE, [tokens, H]."""
            q, k, v = _batched(q, k, v)
            out, lse = dispatch(
                layer,
                q,
                k,
                v,
                native=lambda: sdpa(q, k, v, scale=softmax_scale, return_lse=True),
                scale=softmax_scale,
                return_lse=True,
                shards=_processes(),
            )
            return out.flatten(-2).flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)

    return OpenVCWeight


def _batched(*operands: Any) -> Any:
    return [x.unsqueeze(0) if x.dim() == _WITHOUT_BATCH else x for x in operands]


def _as_bias(mask: Any, q: Any) -> Any:
    """Masks that are added have the type of the scores there."""
    import torch

    return mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)


def _processes() -> int:
    """Of the ring; all of them, where tensors are also spread another way."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
