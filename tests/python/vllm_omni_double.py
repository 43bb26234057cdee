# SPDX-License-Identifier: BSD-3-Clause
"""What the plugin meets in vLLM-Omni: registry, platform, forward context, the interface of
attention backends. Written for these tests; nothing of vLLM-Omni is in it."""

import enum
import sys
import types
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from torch.nn.functional import scaled_dot_product_attention

ROOT = "vllm_omni"
BACKENDS = f"{ROOT}.diffusion.attention.backends"


class Meta(enum.EnumMeta):
    def __getitem__(cls, name):
        try:
            return super().__getitem__(name)
        except KeyError:
            raise ValueError(f"Unknown diffusion attention backend: '{name}'") from None


class AttentionBackend:
    supported_platforms = None
    supports_prefix_kv_slicing = False

    @classmethod
    def validate_available(cls):
        return None

    @classmethod
    def supports_attention_mask(cls, attention_spec=None):
        return False


class AttentionImpl:
    pass


@dataclass
class AttentionMetadata:
    attn_mask: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    full_attn_spans: Any = None


class SDPAImpl(AttentionImpl):
    def __init__(
        self,
        num_heads,
        head_size,
        softmax_scale,
        causal=False,
        num_kv_heads=None,
        prefix="",
        backend_kwargs=None,
        **extra_impl_args,
    ):
        self.causal, self.scale = causal, softmax_scale

    def forward(self, query, key, value, attn_metadata=None):
        mask = None if attn_metadata is None else attn_metadata.attn_mask
        if mask is not None and mask.dim() == 2:
            mask = mask.bool()[:, None, None]
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal, scale=self.scale
        )
        return out.transpose(1, 2)


class SDPABackend(AttentionBackend):
    @classmethod
    def supports_attention_mask(cls, attention_spec=None):
        return True

    @staticmethod
    def get_impl_cls():
        return SDPAImpl


class Unmasked(SDPAImpl):
    """A dense backend that takes no masks."""

    def forward(self, query, key, value, attn_metadata=None):
        assert attn_metadata is None or attn_metadata.attn_mask is None
        return super().forward(query, key, value)


class UnmaskedBackend(AttentionBackend):
    @staticmethod
    def get_impl_cls():
        return Unmasked


def install(monkeypatch):
    """Puts the modules into sys.modules; returns the enum of backends and the forward context."""

    class Backends(enum.Enum, metaclass=Meta):
        TORCH_SDPA = f"{BACKENDS}.sdpa.SDPABackend"

        def get_class(self):
            return resolve_name(self.value)

    class Platform:
        @classmethod
        def get_diffusion_attn_backend_cls(cls, selected_backend, head_size, trtllm=False):
            if selected_backend is None:
                return f"{BACKENDS}.unmasked.UnmaskedBackend"
            backend = Backends[selected_backend.upper()].get_class()
            backend.validate_available()
            return Backends[selected_backend.upper()].value

    context = types.SimpleNamespace(denoise_step_idx=None, total_denoise_steps=None)
    contents = {
        f"{BACKENDS}.registry": {"DiffusionAttentionBackendEnum": Backends},
        f"{BACKENDS}.abstract": {
            "AttentionBackend": AttentionBackend,
            "AttentionImpl": AttentionImpl,
            "AttentionMetadata": AttentionMetadata,
        },
        f"{BACKENDS}.sdpa": {"SDPABackend": SDPABackend},
        f"{BACKENDS}.unmasked": {"UnmaskedBackend": UnmaskedBackend},
        f"{ROOT}.diffusion.forward_context": {
            "get_forward_context": lambda: context,
            "is_forward_context_available": lambda: True,
        },
        f"{ROOT}.platforms": {"current_omni_platform": Platform},
    }
    for name, values in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                module = types.ModuleType(path)
                module.__path__ = []
                monkeypatch.setitem(sys.modules, path, module)
                parent, _, last = path.rpartition(".")
                if parent:
                    setattr(sys.modules[parent], last, module)
        vars(sys.modules[name]).update(values)
    return Backends, Platform, context
