# SPDX-License-Identifier: BSD-3-Clause
"""SGLang diffusion with FP8 attention: python switch_sglang.py MODEL

Installing this package is enough, SGLang finds it as a plugin. On the command line the same is

    sglang generate --model-path MODEL --prompt "..." --attention-backend open_vc

Each process reports to a file of its own: OPEN_VC_ATTN_REPORT=report.txt in the environment.
"""

import argparse
import json

CONFIG = {
    # One step and one block at each end stay as they are, and cross-attention.
    "policy": {"first_steps": 1, "last_steps": 1, "first_layers": 1, "last_layers": 1},
    "numerics": {"budget": "balanced"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="A video with FP8 attention in SGLang.")
    parser.add_argument("model", help="folder or name of a model, such as a Wan")
    parser.add_argument("--prompt", default="a red kite over a green hill")
    arguments = parser.parse_args()

    from sglang.multimodal_gen import DiffGenerator

    generator = DiffGenerator.from_pretrained(
        model_path=arguments.model,
        attention_backend="open_vc",
        attention_backend_config=json.dumps({"open_vc": CONFIG}),
    )
    generator.generate(
        sampling_params_kwargs={"prompt": arguments.prompt, "output_path": ".", "save_output": True}
    )


if __name__ == "__main__":
    main()
