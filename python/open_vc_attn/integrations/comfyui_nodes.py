# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of ComfyUI. ``open-vc-attn comfyui install`` writes what imports this module there."""

from __future__ import annotations

from typing import Any

from .._numerics import BUDGETS
from .._policy import FEWEST_TOKENS, Policy
from . import comfyui, enable

_CATEGORY = "model/patch"
_KEPT = 1
"""Steps and blocks at either end that stay out of FP8, as other nodes of this kind have it."""
_MOST = 1000
_MOST_TOKENS = 2**20
_NOTHING = (
    "This model has no Open-VC Attention. Put the node before this one; a node behind it that chooses "
    "an attention function takes its place."
)


def _count(default: int, most: int, tooltip: str) -> tuple[str, dict[str, Any]]:
    return "INT", {"default": default, "min": 0, "max": most, "tooltip": tooltip}


class OpenVCAttention:
    """Lets the attention of a model run in FP8."""

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {
                "model": ("MODEL",),
                "enabled": ("BOOLEAN", {"default": True}),
                "budget": (
                    list(BUDGETS),
                    {
                        "default": "balanced",
                        "tooltip": "How much time goes into exactness: fast, balanced, best.",
                    },
                ),
                "first_steps": _count(_KEPT, _MOST, "Steps at the beginning without FP8."),
                "last_steps": _count(_KEPT, _MOST, "Steps at the end without FP8."),
                "first_blocks": _count(_KEPT, _MOST, "First blocks of the model without FP8."),
                "last_blocks": _count(_KEPT, _MOST, "Last blocks of the model without FP8."),
                "min_tokens": _count(
                    FEWEST_TOKENS,
                    _MOST_TOKENS,
                    "Attention over fewer tokens stays as it is: there FP8 is not faster.",
                ),
            }
        }

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "switch_on"
    CATEGORY = _CATEGORY
    DESCRIPTION = (
        "FP8 attention for long sequences of heads with up to 128 channels. All other attention is what "
        "it was: that of a node before this one, or ComfyUI's own. A node behind this one that "
        "chooses an attention function replaces it."
    )

    def switch_on(
        self,
        model: Any,
        enabled: bool,
        budget: str,
        first_steps: int,
        last_steps: int,
        first_blocks: int,
        last_blocks: int,
        min_tokens: int,
    ) -> tuple[Any]:
        model = model.clone()
        if not enabled:
            comfyui.detach(model)
            return (model,)
        policy = Policy(
            first_steps=first_steps,
            last_steps=last_steps,
            first_layers=first_blocks,
            last_layers=last_blocks,
            min_keys=min_tokens,
            min_queries=min_tokens,
        )
        enable(model, policy=policy, budget=budget)  # type: ignore[arg-type]
        return (model,)


class OpenVCAttentionReport:
    """Shows which attention calls of a model ran in FP8, and why the others did not."""

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        after = {"tooltip": "What the sampler made: the report is written after it."}
        return {"required": {"model": ("MODEL",), "samples": ("LATENT", after)}}

    RETURN_TYPES = ("LATENT", "STRING")
    RETURN_NAMES = ("samples", "report")
    FUNCTION = "report"
    OUTPUT_NODE = True
    CATEGORY = _CATEGORY
    DESCRIPTION = "Which attention calls of a model ran in FP8, and why the others did not."

    def report(self, model: Any, samples: Any) -> dict[str, Any]:
        switch = comfyui.switch_of_model(model)
        text = _NOTHING if switch is None else switch.report()
        return {"ui": {"text": [text]}, "result": (samples, text)}


NODE_CLASS_MAPPINGS = {
    "OpenVCAttention": OpenVCAttention,
    "OpenVCAttentionReport": OpenVCAttentionReport,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "OpenVCAttention": "Open-VC Attention",
    "OpenVCAttentionReport": "Open-VC Attention Report",
}
