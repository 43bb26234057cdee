# SPDX-License-Identifier: BSD-3-Clause
"""Video transformers of diffusers with one layer of each kind, in their real size and tiny."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import diffusers
import torch

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Model:
    about: str
    cls: str
    config: Mapping[str, Any]
    inputs: Callable[[], Inputs]

    def build(self, device: torch.device) -> tuple[torch.nn.Module, Inputs]:
        """The network and inputs, equal in every process."""
        torch.manual_seed(0)
        with device:
            network = getattr(diffusers, self.cls)(**self.config)
            network = network.bfloat16().eval().requires_grad_(False)
            inputs = self.inputs()
        return network, inputs


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def wan_inputs(frames: int, height: int, width: int, text: int, channels: int) -> Inputs:
    return {
        "hidden_states": noise(1, 16, frames, height, width),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": noise(1, text, channels),
    }


def hunyuan_inputs(frames: int, height: int, width: int, channels: int, pooled: int) -> Inputs:
    tokens, valid = 256, 60
    return {
        "hidden_states": noise(1, 16, frames, height, width),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": noise(1, tokens, channels),
        "encoder_attention_mask": (torch.arange(tokens) < valid)[None].float(),
        "pooled_projections": noise(1, pooled),
        "guidance": torch.tensor([6000.0]).bfloat16(),
    }


def ltx2_inputs(frames: int, height: int, width: int, audio: int, channels: int) -> Inputs:
    text = 256
    video_channels, audio_channels = 128, 128
    return {
        "hidden_states": noise(1, frames * height * width, video_channels),
        "audio_hidden_states": noise(1, audio, audio_channels),
        "encoder_hidden_states": noise(1, text, channels),
        "audio_encoder_hidden_states": noise(1, text, channels),
        "timestep": torch.tensor([500.0]).bfloat16(),
        "num_frames": frames,
        "height": height,
        "width": width,
        "fps": 24.0,
        "audio_num_frames": audio,
    }


WAN = {"attention_head_dim": 128, "in_channels": 16, "out_channels": 16, "num_layers": 1}
HUNYUAN = {
    "attention_head_dim": 128,
    "in_channels": 16,
    "out_channels": 16,
    "num_layers": 1,
    "num_single_layers": 1,
}

MODELS = {
    "Wan 2.1 14B": Model(
        "1280 x 720, 81 frames: 75,600 tokens, 40 heads",
        "WanTransformer3DModel",
        {**WAN, "num_attention_heads": 40, "text_dim": 4096, "freq_dim": 256, "ffn_dim": 13824},
        lambda: wan_inputs(21, 90, 160, 512, 4096),
    ),
    "Wan 2.1 14B, 480p": Model(
        "832 x 480, 81 frames: 32,760 tokens, 40 heads",
        "WanTransformer3DModel",
        {**WAN, "num_attention_heads": 40, "text_dim": 4096, "freq_dim": 256, "ffn_dim": 13824},
        lambda: wan_inputs(21, 60, 104, 512, 4096),
    ),
    "HunyuanVideo": Model(
        "1280 x 720, 61 frames: 57,600 tokens and 256 of text of which 60 are valid, 24 heads; one "
        "layer of two streams and one of one",
        "HunyuanVideoTransformer3DModel",
        {
            **HUNYUAN,
            "num_attention_heads": 24,
            "text_embed_dim": 4096,
            "pooled_projection_dim": 768,
        },
        lambda: hunyuan_inputs(16, 90, 160, 4096, 768),
    ),
    "LTX-2": Model(
        "1280 x 704, 121 frames: 14,080 tokens, 32 heads; with its audio stream",
        "LTX2VideoTransformer3DModel",
        {"num_layers": 1},
        lambda: ltx2_inputs(16, 22, 40, 126, 3840),
    ),
}

TINY = {
    "Wan 2.1 14B": Model(
        "tiny",
        "WanTransformer3DModel",
        {**WAN, "num_attention_heads": 2, "text_dim": 32, "freq_dim": 64, "ffn_dim": 256},
        lambda: wan_inputs(2, 16, 16, 12, 32),
    ),
    "HunyuanVideo": Model(
        "tiny",
        "HunyuanVideoTransformer3DModel",
        {**HUNYUAN, "num_attention_heads": 2, "text_embed_dim": 32, "pooled_projection_dim": 16},
        lambda: hunyuan_inputs(2, 16, 16, 32, 16),
    ),
    "LTX-2": Model(
        "tiny",
        "LTX2VideoTransformer3DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 128,
            "cross_attention_dim": 256,
            "audio_num_attention_heads": 2,
            "audio_attention_head_dim": 64,
            "audio_cross_attention_dim": 128,
            "num_layers": 1,
            "caption_channels": 32,
        },
        lambda: ltx2_inputs(2, 4, 4, 10, 32),
    ),
}
