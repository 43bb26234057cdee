# SPDX-License-Identifier: BSD-3-Clause
"""What the plugin meets in SGLang diffusion: hooks, platform, forward context, the interface of
attention backends. Written for these tests; nothing of SGLang is in it."""

import enum
import functools
import itertools
import sys
import types
from contextlib import contextmanager
from pkgutil import resolve_name

import torch
from torch.nn.functional import scaled_dot_product_attention

ROOT = "sglang.multimodal_gen.runtime"
SDPA = f"{ROOT}.layers.attention.backends.sdpa.SDPABackend"


class AttentionBackendEnum(enum.Enum):
    FA = enum.auto()
    TORCH_SDPA = enum.auto()


class CpuPlatform:
    device_name = "cpu"

    @classmethod
    def get_attn_backend_cls_str(cls, selected_backend, head_size, dtype):
        return SDPA


class CudaPlatformBase(CpuPlatform):
    @classmethod
    def get_attn_backend_cls_str(cls, selected_backend, head_size, dtype):
        raise ValueError(f"Invalid attention backend {selected_backend}")


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    hooks = []  # noqa: RUF012

    @classmethod
    def register(cls, target, hook, hook_type):
        cls.hooks.append((target, hook))

    @classmethod
    def apply_hooks(cls):
        for target, hook in cls.hooks:
            owner, _, name = target.rpartition(".")
            owner = resolve_name(owner)
            original = vars(owner)[name]
            wrap = type(original) if isinstance(original, classmethod) else (lambda x: x)
            wrapped = functools.partial(hook, getattr(original, "__func__", original))
            setattr(owner, name, wrap(lambda *args, call=wrapped: call(*args)))
        cls.hooks.clear()


class DenoisingStage:
    def _parse_attention_backend_override(self, name):
        if name is not None:
            raise ValueError(f"Unknown attention_backend_override {name!r}")


class AttentionBackend:
    accept_output_buffer = False


class AttentionImpl:
    def forward_ring_kv_chunk(self, query, key, value):
        raise NotImplementedError


class SDPAImpl(AttentionImpl):
    def __init__(
        self, num_heads, head_size, causal, softmax_scale, num_kv_heads=None, prefix="", **_
    ):
        self.causal, self.scale = causal, softmax_scale

    def forward(self, query, key, value, attn_metadata):
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        out = scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        return out.transpose(1, 2)

    def forward_varlen(self, query, key, value, *, cu_seqlens, max_seqlen, cu_seqlens_host=None):
        out, bounds = torch.empty_like(query), cu_seqlens.tolist()
        for start, end in itertools.pairwise(bounds):
            parts = [x[None, start:end] for x in (query, key, value)]
            out[start:end] = self.forward(*parts, None)[0]
        return out


class SDPABackend(AttentionBackend):
    @staticmethod
    def get_impl_cls():
        return SDPAImpl


def trailing_padding_used_len(total_tokens, max_seqlen, bounds):
    if (
        len(bounds) == 3
        and bounds[0] == 0
        and bounds[1] == max_seqlen
        and bounds[2] == total_tokens
    ):
        return bounds[1]
    return None


_context = []


@contextmanager
def set_forward_context(current_timestep, attn_metadata, forward_batch=None):
    _context.append(
        types.SimpleNamespace(current_timestep=current_timestep, forward_batch=forward_batch)
    )
    try:
        yield
    finally:
        _context.pop()


_server_args = []


def install(monkeypatch):
    backends = f"{ROOT}.layers.attention.backends"
    contents = {
        f"{ROOT}.platforms": {
            "AttentionBackendEnum": AttentionBackendEnum,
            "current_platform": CpuPlatform,
        },
        f"{ROOT}.platforms.cpu": {"CpuPlatform": CpuPlatform},
        f"{ROOT}.platforms.cuda": {"CudaPlatformBase": CudaPlatformBase},
        f"{ROOT}.platforms.plugins": {"HookRegistry": HookRegistry, "HookType": HookType},
        f"{ROOT}.pipelines_core.stages.denoising": {"DenoisingStage": DenoisingStage},
        f"{backends}.attention_backend": {
            "AttentionBackend": AttentionBackend,
            "AttentionImpl": AttentionImpl,
            "AttentionMetadata": types.SimpleNamespace,
            "trailing_padding_used_len": trailing_padding_used_len,
        },
        f"{backends}.sdpa": {"SDPABackend": SDPABackend, "SDPAImpl": SDPAImpl},
        f"{ROOT}.layers.attention.selector": {
            "get_component_attn_backend_name": lambda: "transformer"
        },
        f"{ROOT}.managers.forward_context": {
            "get_forward_context_or_none": lambda: _context[-1] if _context else None,
            "set_forward_context": set_forward_context,
        },
        f"{ROOT}.server_args": {
            "get_global_server_args": lambda: _server_args[-1],
            "set_global_server_args": _server_args.append,
        },
        f"{ROOT}.utils.precision": {"get_compute_dtype": lambda: torch.bfloat16},
        f"{ROOT}.distributed.parallel_state": {"get_ring_parallel_world_size": lambda: 1},
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
