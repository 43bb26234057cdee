# SPDX-License-Identifier: BSD-3-Clause
"""Names that link the contenders to summaries and reports, which run without torch."""

OPENVC_KERNEL = "Open-VC kernel"
OPENVC_CALL = "Open-VC complete call"
CUDNN_BF16 = "cuDNN BF16"
FLASH_ATTENTION_2 = "FlashAttention-2 BF16"
SDPA_NAMES = (CUDNN_BF16, FLASH_ATTENTION_2)
