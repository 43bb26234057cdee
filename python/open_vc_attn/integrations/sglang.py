# SPDX-License-Identifier: BSD-3-Clause
"""SGLang diffusion: the attention backend ``open_vc``.

The package is a plugin of SGLang: pip install is enough, and ``--attention-backend open_vc`` or
``--component-attention-backends.transformer open_vc`` is the switch. Policy and numeric options
come from the environment, or from

    --attention-backend-config '{"open_vc": {"policy": {"first_steps": 1}, "numerics": {"budget": "fast"}}}'

A plugin may register hooks only; SGLang applies them when its platform is known. _sglang_backend.py
is imported when the backend is chosen.
"""

from __future__ import annotations

from typing import Any

from ._enum import NAME, add_member
from ._framework import Framework

FRAMEWORK = Framework(
    title="SGLang diffusion",
    module="sglang.multimodal_gen",
    distribution="sglang",
    oldest="0.5.23",
    switch="sglang generate --attention-backend open_vc ...",
)
REGISTER_AFTER = "sglang.multimodal_gen.runtime.platforms"

_BACKEND = f"{__package__}._sglang_backend.OpenVCBackend"
_RUNTIME = "sglang.multimodal_gen.runtime"
_CHOICE = "get_attn_backend_cls_str"
_PLATFORMS = {"cuda": "cuda.CudaPlatformBase", "cpu": "cpu.CpuPlatform"}
_REQUEST = (
    f"{_RUNTIME}.pipelines_core.stages.denoising.DenoisingStage._parse_attention_backend_override"
)


def register() -> None:
    """Makes "open_vc" known to SGLang in this process; SGLang calls it as a plugin."""
    import torch
    from sglang.multimodal_gen.runtime.platforms import AttentionBackendEnum
    from sglang.multimodal_gen.runtime.platforms.plugins import HookRegistry, HookType

    if NAME in AttentionBackendEnum.__members__:
        return
    member = add_member(AttentionBackendEnum)

    def backend_class(
        choose: Any, cls: Any, selected_backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if selected_backend is member:
            return _BACKEND
        return choose(cls, selected_backend, *args, **kwargs)

    def backend_of_request(parse: Any, stage: Any, name: Any) -> Any:
        if isinstance(name, str) and name.upper() == NAME:
            return member
        return parse(stage, name)

    # Hooks on the platform that cannot be imported here would end up as errors in the log.
    kinds = ["cpu"] if torch.version.cuda is None else ["cuda", "cpu"]
    for kind in kinds:
        target = f"{_RUNTIME}.platforms.{_PLATFORMS[kind]}.{_CHOICE}"
        HookRegistry.register(target, backend_class, HookType.AROUND)
    HookRegistry.register(_REQUEST, backend_of_request, HookType.AROUND)
