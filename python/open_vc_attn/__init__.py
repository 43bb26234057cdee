# SPDX-License-Identifier: BSD-3-Clause
"""FP8 forward attention for long-sequence video diffusion transformers.

    from open_vc_attn import attention
    out = attention(q, k, v)   # [S, H, D] or [B, S, H, D]

Takes torch tensors, NumPy arrays and other DLPack arrays. Importing the package loads no framework
and touches no GPU. Errors are ValueError, TypeError, NotImplementedError (this build or device does
not offer it), MemoryError and RuntimeError (the CUDA driver failed); their texts name the argument,
its value and what to do.
"""

from ._attention import attention, exact_attention
from ._capture import Recording, capture
from ._capture_file import Capture, load_capture
from ._info import info
from ._numerics import Numerics
from ._openvc import version as __version__
from ._options import HeadPlan, Support
from ._paths import cmake_dir, include_dir
from ._policy import Policy
from ._prepared import (
    PreparedFP8,
    attention_fp8,
    attention_v_repair,
    prepare_fp8,
    prepare_v_repair,
)
from ._recipe import LayerRecipe, Recipe, RecipePart
from ._support import is_supported
from ._switch import Switch
from ._threads import get_num_threads, set_num_threads
from ._torch_import import register_with_torch
from ._varlen import attention_varlen
from .integrations import enable

__all__ = [
    "Capture",
    "HeadPlan",
    "LayerRecipe",
    "Numerics",
    "Policy",
    "PreparedFP8",
    "Recipe",
    "RecipePart",
    "Recording",
    "Support",
    "Switch",
    "__version__",
    "attention",
    "attention_fp8",
    "attention_v_repair",
    "attention_varlen",
    "capture",
    "cmake_dir",
    "enable",
    "exact_attention",
    "get_num_threads",
    "include_dir",
    "info",
    "is_supported",
    "load_capture",
    "prepare_fp8",
    "prepare_v_repair",
    "set_num_threads",
]

register_with_torch()
