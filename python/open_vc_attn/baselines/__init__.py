# SPDX-License-Identifier: BSD-3-Clause
"""Published attention numerics on torch tensors, to compare this library with.

    from open_vc_attn.baselines import VSmoothState, vc_attention
    out = vc_attention(q, k, v)     # V-Smooth and ExpCast-FP8 of VC-Attention, arXiv 2609.15810

They show errors, not speed: every stage is a torch operation on the CPU or a CUDA device. Needs
torch. docs/baselines.md says what is the paper's and what is interpretation.
"""

from .state import VSmoothState
from .vc import PreparedVC, attention_vc, prepare_vc, vc_attention

__all__ = ["PreparedVC", "VSmoothState", "attention_vc", "prepare_vc", "vc_attention"]
