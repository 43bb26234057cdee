#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A diffusers pipeline with FP8 attention, and the report of what ran where.

python examples/switch_diffusers.py                                      # random weights, on the CPU
python examples/switch_diffusers.py Wan-AI/Wan2.1-T2V-1.3B-Diffusers     # on a GPU
"""

import argparse

import diffusers
import torch

import open_vc_attn

PROMPT = "A lighthouse in a storm, waves break on the rocks."
STEPS = 4


def tiny_pipeline():
    """Wan's classes with random weights: what it shows is the switch, not a picture."""
    torch.manual_seed(0)
    transformer = diffusers.WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=128,
        text_dim=32,
        freq_dim=64,
        ffn_dim=256,
        num_layers=4,
    )
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    return diffusers.WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=None,
        scheduler=scheduler,
        transformer=transformer.bfloat16(),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "model",
        nargs="?",
        help="a pipeline of diffusers, local or on the hub; a tiny one if absent",
    )
    name = parser.parse_args().model
    if name is None:
        pipe = tiny_pipeline()
        text = torch.randn(1, 12, 32).bfloat16()
        inputs = {"prompt_embeds": text, "negative_prompt_embeds": -text}
        inputs |= {"height": 128, "width": 128, "num_frames": 5, "output_type": "latent"}
        fewest = 1  # so small that FP8 would not pay
    else:
        pipe = diffusers.DiffusionPipeline.from_pretrained(name, torch_dtype=torch.bfloat16)
        pipe.to("cuda")
        inputs = {"prompt": PROMPT}
        fewest = open_vc_attn.Policy().min_keys
    # The first and last step, and the first and last block, stay as they are.
    policy = open_vc_attn.Policy(
        first_steps=1,
        last_steps=1,
        first_layers=1,
        last_layers=1,
        min_keys=fewest,
        min_queries=fewest,
    )
    with open_vc_attn.enable(pipe, policy=policy) as switch:
        pipe(num_inference_steps=STEPS, **inputs)
        print(switch.report())


if __name__ == "__main__":
    main()
