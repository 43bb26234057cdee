# SPDX-License-Identifier: BSD-3-Clause
"""Names that link the contenders to summaries and reports, which run without torch."""

OPENVC_KERNEL = "Open-VC kernel"
OPENVC_CALL = "Open-VC complete call"
CUDNN_BF16 = "cuDNN BF16"
FLASH_ATTENTION_2 = "FlashAttention-2 BF16"
SDPA_NAMES = (CUDNN_BF16, FLASH_ATTENTION_2)

DEFAULT_PLAN = "default plan"
# Plans beside the default, and what they ask of the library.
PLANS = {
    "0 extra steps": {"max_extra_steps": 0},
    "1 extra step": {"max_extra_steps": 1, "score_error_target": 0.0},
    "2 extra steps": {"max_extra_steps": 2, "score_error_target": 0.0},
    "4 extra steps": {"max_extra_steps": 4, "score_error_target": 0.0},
    "up to 4 extra steps": {"max_extra_steps": 4},
}


def kernel_name(plan: str) -> str:
    return OPENVC_KERNEL if plan == DEFAULT_PLAN else f"Open-VC, {plan}"


def call_name(plan: str) -> str:
    return OPENVC_CALL if plan == DEFAULT_PLAN else f"{OPENVC_CALL}, {plan}"
