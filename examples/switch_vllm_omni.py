# SPDX-License-Identifier: BSD-3-Clause
"""vLLM-Omni with FP8 attention: python switch_vllm_omni.py MODEL

Installing this package is enough, vLLM-Omni finds it as a plugin. For a server the same is

    vllm serve MODEL --omni --diffusion-attention-backend OPEN_VC

Each process reports to a file of its own: OPEN_VC_ATTN_REPORT=report.txt in the environment.
"""

import argparse
import json
import os


def main() -> None:
    parser = argparse.ArgumentParser(description="A video with FP8 attention in vLLM-Omni.")
    parser.add_argument("model", help="folder or name of a model, such as a Wan")
    parser.add_argument("--prompt", default="a red kite over a green hill")
    arguments = parser.parse_args()

    # The worker processes inherit it: one step and one block at each end stay as they are.
    policy = {"first_steps": 1, "last_steps": 1, "first_layers": 1, "last_layers": 1}
    os.environ.setdefault("OPEN_VC_ATTN_POLICY", json.dumps(policy))

    from vllm_omni.entrypoints.omni import Omni

    omni = Omni(
        model=arguments.model, diffusion_attention_config={"default": {"backend": "OPEN_VC"}}
    )
    omni.generate(arguments.prompt)


if __name__ == "__main__":
    main()
