# SPDX-License-Identifier: BSD-3-Clause
"""vLLM-Omni: the diffusion attention backend ``OPEN_VC``.

The package is a plugin of vLLM-Omni: pip install is enough, and ``--diffusion-attention-backend
OPEN_VC``, or a role in ``--diffusion-attention-config``, is the switch. Policy and numeric options
come from the environment. _vllm_omni_backend.py is imported when the backend is chosen.
"""

from __future__ import annotations

from ._enum import NAME, add_member
from ._framework import Framework

FRAMEWORK = Framework(
    title="vLLM-Omni",
    module="vllm_omni",
    distribution="vllm-omni",
    oldest="0.30",
    switch="vllm serve MODEL --omni --diffusion-attention-backend OPEN_VC",
)
REGISTER_AFTER = "vllm_omni.diffusion.attention.backends.registry"

_BACKEND = f"{__package__}._vllm_omni_backend.OpenVCBackend"


def register() -> None:
    """Makes "OPEN_VC" known to vLLM-Omni in this process; vLLM-Omni calls it as a plugin."""
    from vllm_omni.diffusion.attention.backends.registry import DiffusionAttentionBackendEnum

    add_member(DiffusionAttentionBackendEnum, NAME, _BACKEND)
