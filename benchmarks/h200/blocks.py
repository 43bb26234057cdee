# SPDX-License-Identifier: BSD-3-Clause
"""What switching attention gains in real models: one layer of their real size, random weights.

    python benchmarks/h200/blocks.py --out blocks.json [--only NAME] [--tiny]

Each model of diffusers has one layer of each kind; a forward pass runs with torch's attention, with
cuDNN's, with FlashAttention-3 and with open_vc_attn.enable(), in shuffled rounds. With two GPUs, the
largest model also runs with the context parallelism of diffusers, as a ring and as Ulysses. Times
alone: random weights say nothing about a video. --tiny tries everything on any machine. About two
minutes; the record is written after each part.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import diffusers
import torch
from block_models import MODELS, TINY, Model
from contenders import FlashAttention3
from diffusers.models.attention_dispatch import attention_backend
from paired_timing import median

import open_vc_attn

ROUNDS, WARM_UP = 5, 1
GPUS = 2
PARALLEL_MODEL = "Wan 2.1 14B"
OPEN_VC, TORCH, CUDNN = "Open-VC", "torch", "cuDNN"
Forward = Callable[[], torch.Tensor]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, a JSON file")
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--parallel-only", action="store_true", help="only what needs two GPUs")
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU if need be")
    return parser.parse_args()


def forward_of(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Forward:
    return lambda: model(**inputs, return_dict=False)[0]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def milliseconds(forward: Forward) -> float:
    synchronize()
    begin = time.perf_counter()
    forward()
    synchronize()
    return (time.perf_counter() - begin) * 1e3


def flash_attention_3() -> Callable[..., torch.Tensor] | None:
    """An argument for enable(otherwise=), or None where it is not installed."""
    try:
        function = FlashAttention3.function()
    except Exception:  # an extension built for another torch fails in many ways
        return None

    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: Any, scale: Any, **_: Any
    ) -> torch.Tensor:
        if mask is not None:
            raise ValueError("FlashAttention-3 takes no mask")
        out = function(q.contiguous(), k.contiguous(), v.contiguous(), softmax_scale=scale)
        return out[0] if isinstance(out, tuple) else out

    return attend


def variants(model: torch.nn.Module, policy: open_vc_attn.Policy) -> dict[str, Callable[[], Any]]:
    """Context managers in which a forward pass runs, by name."""
    found: dict[str, Callable[[], Any]] = {TORCH: nullcontext}
    if torch.cuda.is_available():
        found[CUDNN] = lambda: attention_backend("_native_cudnn")
        if (attend := flash_attention_3()) is not None:
            nowhere = open_vc_attn.Policy(layers=[])
            found["FlashAttention-3"] = lambda: open_vc_attn.enable(
                model, policy=nowhere, otherwise=attend
            )
    for budget in ("fast", "balanced", "best"):
        found[f"{OPEN_VC}, {budget}"] = lambda budget=budget: open_vc_attn.enable(
            model, policy=policy, budget=budget
        )
    return found


def run_in(context: Callable[[], Any], forward: Forward) -> tuple[float, torch.Tensor]:
    with context():
        for _ in range(WARM_UP):
            out = forward()
        return milliseconds(forward), out


def measure_model(
    model: Model, device: torch.device, policy: open_vc_attn.Policy
) -> dict[str, Any]:
    """Median times, and what FP8 did in how many calls."""
    network, inputs = model.build(device)
    forward = forward_of(network, inputs)
    times: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    with torch.no_grad():
        with open_vc_attn.enable(network, policy=policy) as switch:
            forward()
            calls = [
                {"layer": x.layer, "queries": x.queries, "keys": x.keys, "heads": x.heads}
                for x in switch.calls
                if x.fp8
            ]
        contexts = variants(network, policy)
        for _ in range(ROUNDS):
            for name, context in contexts.items():
                if name in failures:
                    continue
                try:
                    elapsed, _ = run_in(context, forward)
                except Exception as error:  # some backends refuse masks, or run out of memory
                    failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
                    continue
                times.setdefault(name, []).append(elapsed)
    medians = {name: round(median(values), 2) for name, values in times.items()}
    return {
        "about": model.about,
        "fp8_calls": calls,
        "ms": medians,
        "gain_over_torch": {
            name: round(medians[TORCH] / value, 3) for name, value in medians.items()
        },
        "failures": failures,
    }


def parallel_worker(rank: int, folder: str, tiny: bool) -> None:
    """One of GPUS processes: times of a ring and of Ulysses, and the distance from one GPU."""
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    # Multicast between GPUs is not available everywhere that NVLink is.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=GPUS, device_id=device
    )
    model = (TINY if tiny else MODELS)[PARALLEL_MODEL]
    policy = open_vc_attn.Policy(min_keys=1, min_queries=1) if tiny else open_vc_attn.Policy()
    found: dict[str, Any] = {}
    with torch.no_grad():
        network, inputs = model.build(device)
        forward = forward_of(network, inputs)
        native = forward()
        found["one GPU"] = timed(network, forward, policy, native)
        with open_vc_attn.enable(network, policy=policy):
            single = forward()
        for degree in ("ring_degree", "ulysses_degree"):
            network, inputs = model.build(device)
            network.enable_parallelism(config=diffusers.ContextParallelConfig(**{degree: GPUS}))
            forward = forward_of(network, inputs)
            found[degree] = timed(network, forward, policy, single)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def timed(
    network: torch.nn.Module,
    forward: Forward,
    policy: open_vc_attn.Policy,
    reference: torch.Tensor,
) -> dict[str, float]:
    """Times with cuDNN's attention, which has the LSE that a ring needs, and with ours, and how far
    our output is from a reference."""
    times: dict[str, list[float]] = {CUDNN: [], OPEN_VC: []}
    for _ in range(ROUNDS):
        times[CUDNN].append(run_in(lambda: attention_backend("_native_cudnn"), forward)[0])
        with ExitStack() as stack:
            stack.enter_context(open_vc_attn.enable(network, policy=policy))
            elapsed, out = run_in(nullcontext, forward)
            times[OPEN_VC].append(elapsed)
    difference = (out.double() - reference.double()).norm() / reference.double().norm()
    return {
        **{f"{name} ms": round(median(values), 2) for name, values in times.items()},
        "difference_percent": round(100 * float(difference), 4),
    }


def measure_parallel(tiny: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(parallel_worker, args=(folder, tiny), nprocs=GPUS)
        found: dict[str, Any] = json.loads(Path(folder, "found.json").read_text())
    single = found["one GPU"]
    for degree in ("ring_degree", "ulysses_degree"):
        for name in (CUDNN, OPEN_VC):
            share = single[f"{name} ms"] / (GPUS * found[degree][f"{name} ms"])
            found[degree][f"{name} efficiency_percent"] = round(100 * share, 1)
    return {"model": PARALLEL_MODEL, "gpus": GPUS, **found}


def main() -> int:
    arguments = parse_arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    record: dict[str, Any] = {
        "about": {
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else "none",
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "tiny": arguments.tiny,
            "weights": "random",
        },
        "models": {},
    }

    def save() -> None:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")

    policy = open_vc_attn.Policy()
    if arguments.tiny:
        policy = open_vc_attn.Policy(min_keys=1, min_queries=1)
    for name, model in (TINY if arguments.tiny else MODELS).items():
        if arguments.parallel_only or (arguments.only and arguments.only not in name):
            continue
        print(f"{name}: {model.about}", flush=True)
        record["models"][name] = measure_model(model, device, policy)
        print(json.dumps(record["models"][name]), flush=True)
        save()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if torch.cuda.device_count() >= GPUS and not arguments.only:
        record["parallel"] = measure_parallel(arguments.tiny)
        print(json.dumps(record["parallel"]), flush=True)
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
