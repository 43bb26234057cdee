# SPDX-License-Identifier: BSD-3-Clause
"""Ways to compute attention on an NVIDIA GPU: this library and what else is installed.

Only what imports takes part. FP8 kernels of other libraries get inputs that were quantised before
the clock started, as this library's kernel does: their users' models do that elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from importlib import import_module
from typing import Any, NamedTuple

import torch
from contender_names import (
    CUDNN_BF16,
    FLASH_ATTENTION_2,
    OPENVC_CALL,
    OPENVC_KERNEL,
    PLANS,
    call_name,
    kernel_name,
)
from inputs import HEAD_DIM, Inputs
from paired_timing import Launch

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
SOFTMAX_SCALE = HEAD_DIM**-0.5


class Call(NamedTuple):
    """A contender set up for given inputs."""

    launch: Launch
    decode: Callable[[Any], torch.Tensor] = lambda result: result
    """From what launch() returns to the output, [B, S, H, 128]."""
    plans: Callable[[], list[dict[str, Any]]] | None = None
    """What this library's preparation decided for each head."""


class Contender(ABC):
    """One way to compute attention."""

    name: str
    kind: str
    """"openvc", "bf16" or "fp8"."""
    scope = "call"
    """"kernel" if quantised inputs are made outside of the timed region, else "call"."""
    note = ""

    @abstractmethod
    def version(self) -> str:
        """Imports what the contender needs; raises if it is not there."""

    @abstractmethod
    def set_up(self, inputs: Inputs) -> Call:
        """Everything that is done once for given inputs."""

    def context(self) -> AbstractContextManager[Any]:
        """Held while launches run."""
        return nullcontext()


class OpenVcKernel(Contender):
    """The attention kernel on prepared inputs."""

    kind = "openvc"
    scope = "kernel"

    def __init__(self, name: str, numerics: dict[str, Any] | None = None) -> None:
        self.name = name
        self._numerics = numerics

    def version(self) -> str:
        return str(import_module("open_vc_attn").__version__)

    def set_up(self, inputs: Inputs) -> Call:
        library = import_module("open_vc_attn")
        prepared = library.prepare_fp8(
            *inputs.tensors, causal=inputs.causal, numerics=self._numerics
        )
        return Call(
            lambda: library.attention_fp8(prepared),
            plans=lambda: [asdict(plan) for plan in prepared.plans],
        )


class OpenVcCall(Contender):
    """attention(q, k, v), preparation included."""

    kind = "openvc"

    def __init__(self, name: str, numerics: dict[str, Any] | None = None) -> None:
        self.name = name
        self._numerics = numerics

    def version(self) -> str:
        return str(import_module("open_vc_attn").__version__)

    def set_up(self, inputs: Inputs) -> Call:
        library = import_module("open_vc_attn")
        options = {"causal": inputs.causal, "numerics": self._numerics}
        return Call(lambda: library.attention(*inputs.tensors, **options))


class TorchSdpa(Contender):
    """torch.nn.functional.scaled_dot_product_attention with one backend."""

    kind = "bf16"

    def __init__(self, name: str, backend: str) -> None:
        self.name = name
        self._backend = backend

    def version(self) -> str:
        if self._backend == "CUDNN_ATTENTION":
            return f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
        return f"torch {torch.__version__}"

    def set_up(self, inputs: Inputs) -> Call:
        q, k, v = (x.transpose(1, 2) for x in inputs.tensors)
        attention = torch.nn.functional.scaled_dot_product_attention
        return Call(
            lambda: attention(q, k, v, is_causal=inputs.causal),
            lambda result: result.transpose(1, 2),
        )

    def context(self) -> AbstractContextManager[Any]:
        attention = import_module("torch.nn.attention")
        return attention.sdpa_kernel(getattr(attention.SDPBackend, self._backend))


class FlashAttention3(Contender):
    """FlashAttention-3 in BF16."""

    name = "FlashAttention-3 BF16"
    kind = "bf16"

    def version(self) -> str:
        self.function()
        return _distribution_version("fa3-fwd", "flash-attn-3")

    def set_up(self, inputs: Inputs) -> Call:
        function = self.function()
        return Call(lambda: function(*inputs.tensors, causal=inputs.causal), _first)

    @staticmethod
    def function() -> Any:
        return _import_any("fa3_fwd_interface", "flash_attn_interface").flash_attn_func


class FlashAttention3Fp8(FlashAttention3):
    """FlashAttention-3 on E4M3 inputs with a scale per head."""

    name = "FlashAttention-3 FP8"
    kind = "fp8"
    scope = "kernel"
    note = "inputs quantised before, one scale per head; BF16 output"

    def set_up(self, inputs: Inputs) -> Call:
        function = self.function()
        (q, q_scale), (k, k_scale), (v, v_scale) = (
            quantize(x, per_head=True) for x in inputs.tensors
        )
        scales = {"q_descale": q_scale, "k_descale": k_scale, "v_descale": v_scale}
        return Call(lambda: function(q, k, v, causal=inputs.causal, **scales), _first)


class FlashAttention4(Contender):
    """FlashAttention-4 in BF16: its kernel for this GPU, compiled at first use."""

    name = "FlashAttention-4 BF16"
    kind = "bf16"

    def version(self) -> str:
        import_module("flash_attn.cute")
        return _distribution_version("flash-attn-4")

    def set_up(self, inputs: Inputs) -> Call:
        function = import_module("flash_attn.cute").flash_attn_func
        return Call(lambda: function(*inputs.tensors, causal=inputs.causal), _first)


class SageAttention(Contender):
    """SageAttention, its own quantisation included. PyPI has version 1 alone."""

    name = "SageAttention"
    kind = "fp8"
    note = "INT8 scores; values FP16 in version 1, FP8 in version 2; includes its preparation"

    def version(self) -> str:
        _ = import_module("sageattention").sageattn
        return _distribution_version("sageattention")

    def set_up(self, inputs: Inputs) -> Call:
        function = import_module("sageattention").sageattn
        return Call(lambda: function(*inputs.tensors, tensor_layout="NHD", is_causal=inputs.causal))


class CudnnFp8(Contender):
    """cuDNN's FP8 attention through its frontend: E4M3 inputs and output, a scale per tensor."""

    name = "cuDNN FP8"
    kind = "fp8"
    scope = "kernel"
    note = "inputs quantised before, one scale per tensor; E4M3 output"

    WEIGHT_SCALE = 256.0
    """Softmax weights are at most 1; what is rounded to E4M3 is weight * scale."""

    def version(self) -> str:
        cudnn = import_module("cudnn")
        return f"cuDNN {cudnn.backend_version_string()}, frontend {cudnn.__version__}"

    def set_up(self, inputs: Inputs) -> Call:
        quantized = [quantize(x, per_head=False) for x in inputs.tensors]
        scales = [scale for _, scale in quantized]
        operands = [x.transpose(1, 2) for x, _ in quantized]  # [B, H, S, D], strided
        try:
            return self._build(operands, scales, inputs.causal)
        except Exception:  # not every version takes tokens before heads
            return self._build([x.contiguous() for x in operands], scales, inputs.causal)

    def _build(
        self, operands: list[torch.Tensor], scales: list[torch.Tensor], causal: bool
    ) -> Call:
        cudnn = import_module("cudnn")
        fp8, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        handle = cudnn.create_handle()
        graph = cudnn.pygraph(
            io_data_type=fp8, intermediate_data_type=fp32, compute_data_type=fp32, handle=handle
        )
        tensors = [
            graph.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=fp8)
            for x in operands
        ]
        names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
        scalars = {
            name: graph.tensor(dim=[1] * 4, stride=[1] * 4, data_type=fp32) for name in names
        }
        q, k, v = tensors
        o, _, amax_s, amax_o = graph.sdpa_fp8(
            q=q,
            k=k,
            v=v,
            **scalars,
            attn_scale=SOFTMAX_SCALE,
            use_causal_mask=causal,
            generate_stats=False,
        )
        out = torch.empty_like(operands[0])  # keeps the strides
        o.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
        o.set_data_type(fp8)
        for amax in (amax_s, amax_o):
            amax.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(fp32)
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])

        def number(value: float) -> torch.Tensor:
            return torch.full((1, 1, 1, 1), value, device="cuda")

        output_scale, largest_weight, largest_output = number(1.0), number(0.0), number(0.0)
        values = [scale.reshape(1, 1, 1, 1) for scale in scales]
        values += [number(1 / self.WEIGHT_SCALE), number(self.WEIGHT_SCALE), output_scale]
        arguments = dict(zip([*tensors, *scalars.values()], operands + values, strict=True))
        arguments |= {o: out, amax_s: largest_weight, amax_o: largest_output}
        workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)

        def launch() -> torch.Tensor:
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(arguments, workspace, handle=handle)
            return out

        # The scale of the output comes from the largest output of a call before, as in training.
        launch()
        torch.cuda.synchronize()
        output_scale.copy_(E4M3_MAX / largest_output.clamp(min=1e-30))
        return Call(launch, lambda result: result.transpose(1, 2).float() / output_scale)


def quantize(x: torch.Tensor, *, per_head: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 values of a [B, S, H, D] tensor, and what to multiply them by: [B, H] or one number."""
    axes = (1, 3) if per_head else (0, 1, 2, 3)
    scale = x.abs().amax(axes, keepdim=True).float().clamp(min=1e-30) / E4M3_MAX
    # Head by head: a float32 copy of the whole tensor would be larger than the tensors at hand.
    out = torch.empty_like(x, dtype=E4M3)
    for head in range(x.shape[2]):
        divisor = scale[:, :, head if per_head else 0]
        out[:, :, head] = (x[:, :, head].float() / divisor).to(E4M3)
    return out, scale[:, 0, :, 0].contiguous()


def all_contenders() -> list[Contender]:
    """This library first. An entry whose version() raises is not installed."""
    return [
        OpenVcKernel(OPENVC_KERNEL),
        OpenVcCall(OPENVC_CALL),
        *(OpenVcKernel(kernel_name(plan), numerics) for plan, numerics in PLANS.items()),
        *(OpenVcCall(call_name(plan), numerics) for plan, numerics in PLANS.items()),
        TorchSdpa(CUDNN_BF16, "CUDNN_ATTENTION"),
        TorchSdpa(FLASH_ATTENTION_2, "FLASH_ATTENTION"),
        FlashAttention3(),
        FlashAttention4(),
        FlashAttention3Fp8(),
        CudnnFp8(),
        SageAttention(),
    ]


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def _import_any(*names: str) -> Any:
    failures = []
    for name in names:
        try:
            return import_module(name)
        except Exception as error:  # an extension built for another torch fails in many ways
            failures.append(f"{name}: {error}")
    raise ImportError("; ".join(failures))


def _distribution_version(*names: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    for name in names:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "unknown"
