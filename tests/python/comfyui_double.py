# SPDX-License-Identifier: BSD-3-Clause
"""What the adapter meets in ComfyUI: the calling conventions of attention functions, of wrappers
around model calls, and of ModelPatcher. Written for these tests; nothing of ComfyUI is in it."""

import copy
import functools
import sys
import types

import torch
from torch.nn.functional import scaled_dot_product_attention

HEADS, HEAD_DIM = 2, 128
WIDTH = HEADS * HEAD_DIM
OVERRIDE = "optimized_attention_override"


def wrap(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if "_inside_attn_wrapper" in kwargs:
            return function(*args, **kwargs)
        kwargs["_inside_attn_wrapper"] = True
        override = (kwargs.get("transformer_options") or {}).get(OVERRIDE)
        if override is not None:
            return override(function, *args, **kwargs)
        return function(*args, **kwargs)

    wrapper.container_function = None
    return wrapper


@wrap
def attention_pytorch(
    q,
    k,
    v,
    heads,
    mask=None,
    attn_precision=None,
    skip_reshape=False,
    skip_output_reshape=False,
    **kwargs,
):
    if not skip_reshape:
        size = q.shape[-1] // heads
        q, k, v = (x.unflatten(-1, (-1, size)).transpose(1, 2) for x in (q, k, v))
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(1)
    extra = {name: kwargs[name] for name in ("scale", "enable_gqa") if name in kwargs}
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, **extra)
    return out if skip_output_reshape else out.transpose(1, 2).flatten(-2)


class Executor:
    def __init__(self, original, owner, wrappers):
        self.original, self.class_obj, self.wrappers = original, owner, wrappers

    def __call__(self, *args, **kwargs):
        return Executor(self.original, self.class_obj, self.wrappers[1:]).execute(*args, **kwargs)

    def execute(self, *args, **kwargs):
        if self.wrappers:
            return self.wrappers[0](self, *args, **kwargs)
        return self.original(*args, **kwargs)


class SelfAttention(torch.nn.Module):
    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.qkv = torch.nn.Linear(width, 3 * width)

    def forward(self, x, context=None, transformer_options=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        if context is not None:
            _, k, v = self.qkv(context).chunk(3, -1)
        function = sys.modules["comfy.ldm.modules.attention"].optimized_attention
        return function(q, k, v, heads=self.heads, transformer_options=transformer_options or {})


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.self_attn = SelfAttention(width, heads)
        self.cross_attn = SelfAttention(width, heads)

    def forward(self, x, context, transformer_options):
        x = x + self.self_attn(x, transformer_options=transformer_options)
        return x + self.cross_attn(x, context, transformer_options=transformer_options)


class DiffusionModel(torch.nn.Module):
    def __init__(self, blocks, width, heads):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(width, heads) for _ in range(blocks)])

    def forward(self, x, context, transformer_options):
        for block in self.blocks:
            x = block(x, context, transformer_options)
        return x


class Model:
    def __init__(self, diffusion_model):
        self.diffusion_model = diffusion_model

    def apply_model(self, x, t, c_concat, c_crossattn, control, transformer_options):
        wrappers = transformer_options.get("wrappers", {}).get("apply_model", {})
        calls = [call for key in wrappers.values() for call in key]
        return Executor(self._apply_model, self, calls).execute(
            x, t, c_concat, c_crossattn, control, transformer_options
        )

    def _apply_model(self, x, t, c_concat, c_crossattn, control, transformer_options):
        return self.diffusion_model(x, c_crossattn, transformer_options)


class ModelPatcher:
    def __init__(self, model):
        self.model, self.load_device = model, torch.device("cpu")
        self.model_options, self.wrappers = {"transformer_options": {}}, {}

    def clone(self):
        other = ModelPatcher(self.model)
        other.model_options = copy.deepcopy(self.model_options)
        other.wrappers = {
            kind: {key: list(calls) for key, calls in keys.items()}
            for kind, keys in self.wrappers.items()
        }
        return other

    def add_wrapper_with_key(self, kind, key, wrapper):
        self.wrappers.setdefault(kind, {}).setdefault(key, []).append(wrapper)

    def set_model_optimized_attention(self, function):
        self.model_options["transformer_options"][OVERRIDE] = lambda _, *args, **kwargs: function(
            *args, **kwargs
        )


def patcher(blocks=3, width=WIDTH, heads=HEADS, dtype=torch.bfloat16):
    torch.manual_seed(0)
    model = DiffusionModel(blocks, width, heads).to(dtype).requires_grad_(False)
    return ModelPatcher(Model(model))


def sample(model, steps=2, halfway=False):
    """Model calls at every level of a schedule, and on request halfway to the next."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 40, WIDTH, generator=generator).bfloat16()
    context = torch.randn(1, 10, WIDTH, generator=generator).bfloat16()
    sigmas = torch.linspace(1, 0, steps + 1)
    for sigma in sigmas[:-1]:
        for level in (sigma, sigma - 0.1) if halfway else (sigma,):
            options = {
                **copy.deepcopy(model.model_options["transformer_options"]),
                "wrappers": model.wrappers,
                "sample_sigmas": sigmas,
                "sigmas": level[None],
            }
            x = x + 0.1 * model.model.apply_model(x, level, None, context, None, options)
    return x


def install(monkeypatch):
    """Puts the modules into sys.modules."""
    attention = types.ModuleType("comfy.ldm.modules.attention")
    attention.REGISTERED_ATTENTION_FUNCTIONS = {"pytorch": attention_pytorch}
    attention.register_attention_function = attention.REGISTERED_ATTENTION_FUNCTIONS.__setitem__
    attention.optimized_attention = attention_pytorch
    model_patcher = types.ModuleType("comfy.model_patcher")
    model_patcher.ModelPatcher = ModelPatcher
    version = types.ModuleType("comfyui_version")
    version.__version__ = "0.33.0"
    packages = [types.ModuleType(x) for x in ("comfy", "comfy.ldm", "comfy.ldm.modules")]
    for module in (*packages, attention, model_patcher, version):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    packages[0].ldm, packages[1].modules, packages[2].attention = *packages[1:], attention
    return attention
