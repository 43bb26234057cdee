# SPDX-License-Identifier: BSD-3-Clause
"""Tiny models of the real classes of diffusers, with inputs. Weights are random."""

import diffusers
import torch

HEADS = {"num_attention_heads": 2, "attention_head_dim": 128}
TEXT = 32  # channels


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def text_mask(*lengths, tokens=12):
    """Valid text tokens come first."""
    return torch.arange(tokens) < torch.tensor(lengths)[:, None]


def made(cls, seed=0, **config):
    torch.manual_seed(seed)
    return getattr(diffusers, cls)(**config).bfloat16().eval().requires_grad_(False)


def wan(seed=0, layers=3):
    return made(
        "WanTransformer3DModel",
        seed,
        **HEADS,
        in_channels=16,
        out_channels=16,
        text_dim=TEXT,
        freq_dim=64,
        ffn_dim=256,
        num_layers=layers,
    )


def wan_inputs(frames=3, size=16):
    return {
        "hidden_states": noise(1, 16, frames, size, size),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": noise(1, 12, TEXT),
    }


def hunyuan():
    return made(
        "HunyuanVideoTransformer3DModel",
        **HEADS,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=1,
        text_embed_dim=TEXT,
        pooled_projection_dim=16,
    )


def hunyuan_inputs(*lengths):
    batch = len(lengths)
    return {
        "hidden_states": noise(batch, 4, 2, 16, 16),
        "timestep": torch.full((batch,), 500),
        "encoder_hidden_states": noise(batch, 12, TEXT),
        "encoder_attention_mask": text_mask(*lengths).float(),
        "pooled_projections": noise(batch, 16),
        "guidance": torch.full((batch,), 1000.0).bfloat16(),
    }


def hunyuan15():
    return made(
        "HunyuanVideo15Transformer3DModel",
        **HEADS,
        in_channels=9,
        out_channels=4,
        num_layers=2,
        num_refiner_layers=1,
        text_embed_dim=TEXT,
        text_embed_2_dim=24,
        image_embed_dim=16,
        target_size=16,
        task_type="t2v",
    )


def hunyuan15_inputs():
    return {
        "hidden_states": noise(1, 9, 2, 8, 8),
        "timestep": torch.tensor([500.0]).bfloat16(),
        "encoder_hidden_states": noise(1, 12, TEXT),
        "encoder_attention_mask": text_mask(7).float(),
        "encoder_hidden_states_2": noise(1, 6, 24),
        "encoder_attention_mask_2": text_mask(4, tokens=6).float(),
        "image_embeds": torch.zeros(1, 3, 16).bfloat16(),
    }


def ltx2():
    return made(
        "LTX2VideoTransformer3DModel",
        **HEADS,
        in_channels=8,
        out_channels=8,
        cross_attention_dim=256,
        audio_in_channels=4,
        audio_out_channels=4,
        audio_num_attention_heads=2,
        audio_attention_head_dim=64,
        audio_cross_attention_dim=128,
        num_layers=2,
        caption_channels=TEXT,
    )


def ltx2_inputs():
    return {
        "hidden_states": noise(1, 32, 8),
        "audio_hidden_states": noise(1, 10, 4),
        "encoder_hidden_states": noise(1, 12, TEXT),
        "audio_encoder_hidden_states": noise(1, 12, TEXT),
        "timestep": torch.tensor([500.0]).bfloat16(),
        "encoder_attention_mask": text_mask(7).float(),
        "audio_encoder_attention_mask": text_mask(7).float(),
        "num_frames": 2,
        "height": 4,
        "width": 4,
        "fps": 25.0,
        "audio_num_frames": 10,
    }


def qwen_image():
    return made(
        "QwenImageTransformer2DModel",
        **HEADS,
        in_channels=16,
        out_channels=4,
        num_layers=2,
        joint_attention_dim=TEXT,
    )


def qwen_image_inputs(*lengths):
    batch = len(lengths)
    inputs = {
        "hidden_states": noise(batch, 64, 16),
        "encoder_hidden_states": noise(batch, 12, TEXT),
        "encoder_hidden_states_mask": text_mask(*lengths),
        "timestep": torch.full((batch,), 0.5).bfloat16(),
        "img_shapes": [[(1, 8, 8)]] * batch,
    }
    if "txt_seq_lens" in diffusers.QwenImageTransformer2DModel.forward.__annotations__:
        inputs["txt_seq_lens"] = [12] * batch
    return inputs


def flux():
    return made(
        "FluxTransformer2DModel",
        **HEADS,
        in_channels=8,
        num_layers=1,
        num_single_layers=2,
        joint_attention_dim=TEXT,
        pooled_projection_dim=16,
    )


def flux_inputs():
    return {
        "hidden_states": noise(1, 64, 8),
        "encoder_hidden_states": noise(1, 12, TEXT),
        "pooled_projections": noise(1, 16),
        "timestep": torch.tensor([0.5]).bfloat16(),
        "img_ids": torch.zeros(64, 3),
        "txt_ids": torch.zeros(12, 3),
    }


def mochi():
    return made(
        "MochiTransformer3DModel",
        **HEADS,
        num_layers=2,
        pooled_projection_dim=16,
        in_channels=4,
        text_embed_dim=TEXT,
        time_embed_dim=16,
    )


def mochi_inputs():
    return {
        "hidden_states": noise(1, 4, 2, 16, 16),
        "encoder_hidden_states": noise(1, 12, TEXT),
        "timestep": torch.tensor([500.0]).bfloat16(),
        "encoder_attention_mask": text_mask(7),
    }
