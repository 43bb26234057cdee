# SPDX-License-Identifier: BSD-3-Clause
"""Heads of fewer than 128 channels beside others, and what a selection of keys costs.

    python benchmarks/h200/head_sizes.py --out head_sizes.json

Complete calls on N(0,1), in shuffled rounds; error and time of a row are of the same tensors. TFLOP/s
count the products of the channels that there are. The record is written after each part. One
minute and a half.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attention import environment
from contender_names import CUDNN_BF16, OPENVC_CALL
from contenders import FlashAttention3, FlashAttention4, OpenVcCall, TorchSdpa
from gpu_monitor import GpuMonitor
from inputs import gaussian
from measurements import Benchmark
from paired_timing import Launch, Plan, estimate_ms, median_ratio, paired_rounds, warm_up
from results import Results

import open_vc_attn

# Tokens, heads, channels: CogVideoX, Mochi or LTX audio at video lengths; others for the slope.
SHAPES = ((32_768, 32, 64), (73_397, 14, 64), (32_768, 16, 80), (32_768, 16, 96), (32_768, 16, 112))
SELECTION_SHAPE = (73_397, 7)
KEPT = {"all keys": 1.0, "nine of ten": 0.9, "half of the keys": 0.5}
PLAN = Plan(5, timed_seconds=0.25, lead_in_seconds=0.1)
WARM_UP_SECONDS = 1.0
SECONDS_PER_SHAPE = 20.0


def parse_arguments(command_line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, a JSON file")
    parser.add_argument("--commit", help="commit that must be measured; else an error")
    arguments = parser.parse_args(command_line)
    arguments.quick = False
    return arguments


def selection_costs(monitor: GpuMonitor) -> dict[str, Any]:
    """Time of calls with a mask and with lengths, in terms of the call without."""
    tokens, heads = SELECTION_SHAPE
    inputs = gaussian(tokens, heads)
    generator = torch.Generator("cuda").manual_seed(3)
    launches: dict[str, Launch] = {"plain": lambda: open_vc_attn.attention(*inputs.tensors)}
    for name, share in KEPT.items():
        mask = torch.rand(1, tokens, device="cuda", generator=generator) < share
        lengths = torch.tensor([round(tokens * share)], device="cuda", dtype=torch.int32)
        launches[f"mask of {name}"] = lambda m=mask: open_vc_attn.attention(
            *inputs.tensors, key_mask=m
        )
        launches[f"lengths of {name}"] = lambda n=lengths: open_vc_attn.attention(
            *inputs.tensors, key_lengths=n
        )
    estimates = {name: estimate_ms(launch) for name, launch in launches.items()}
    warm_up(launches["plain"], estimates["plain"], WARM_UP_SECONDS)
    timings = paired_rounds(launches, estimates, PLAN, monitor)
    return {
        "tokens": tokens,
        "heads": heads,
        "time_over_plain": {
            name: round(median_ratio(timing, timings["plain"]), 4)
            for name, timing in timings.items()
        },
        "timings": {
            name: timing.describe(monitor, inputs.flops) for name, timing in timings.items()
        },
    }


def table(record: dict[str, Any]) -> str:
    lines = []
    for name, step in record["head_sizes"].items():
        lines.append(f"{name}:")
        for contender, row in step["contenders"].items():
            lines.append(
                f"  {contender:28s} {row['tflops']:7.1f} TFLOP/s {row['p50_ms']:9.3f} ms "
                f"{100 * row['rel_l2']:.2f} %"
            )
        lines += [f"  {contender}: {text}" for contender, text in step["failures"].items()]
    for name, ratio in record.get("selection", {}).get("time_over_plain", {}).items():
        lines.append(f"{name:28s} {ratio:.4f}")
    return "\n".join(lines)


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("head_sizes.py: no CUDA device", file=sys.stderr)
        return 2
    torch.set_grad_enabled(False)
    results = Results(arguments.out.with_suffix(".run"), SECONDS_PER_SHAPE * 2 * len(SHAPES), False)
    with GpuMonitor() as monitor:
        contenders = [
            OpenVcCall(OPENVC_CALL),
            FlashAttention3(),
            FlashAttention4(),
            TorchSdpa(CUDNN_BF16, "CUDNN_ATTENTION"),
        ]
        benchmark = Benchmark(contenders, monitor, results)
        record: dict[str, Any] = {
            "environment": environment(arguments, monitor),
            "versions": benchmark.versions,
            "absent": benchmark.absent,
            "head_sizes": {},
        }

        def save() -> None:
            arguments.out.write_text(json.dumps(record, indent=1) + "\n")

        for tokens, heads, head_dim in SHAPES:
            inputs = gaussian(tokens, heads, head_dim=head_dim)
            step = benchmark.speed(inputs, PLAN, SECONDS_PER_SHAPE)
            record["head_sizes"][f"{tokens}x{heads}x{head_dim}"] = step
            save()
            torch.cuda.empty_cache()
        record["selection"] = selection_costs(monitor)
        save()
    print(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
