# SPDX-License-Identifier: BSD-3-Clause
"""What V-Smooth of the baseline VC-Attention costs, and what it does to a model's output.

    python benchmarks/h200/v_smooth.py --out v_smooth.json [--model FOLDER --frames clip.npy --start 0]

Costs: grouping from nothing and from the centroids of before, and what sorting and means add to the
preparation, as torch operations; in percent of this library's complete attention call on the same
tensors, in shuffled rounds. Errors, with --model: `open-vc-attn quality` in this process.
docs/baselines.md describes the record, which is written after each part; quality.py takes it with
--merge. About one minute without a model, six with one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attention import environment
from gpu_monitor import GpuMonitor
from inputs import HEAD_DIM, Inputs, gaussian
from paired_timing import Launch, Plan, estimate_ms, median, paired_rounds, warm_up

import open_vc_attn
from open_vc_attn.baselines import VSmoothState, vc_attention
from open_vc_attn.baselines.arguments import Operands, heads_first
from open_vc_attn.baselines.state import CLUSTERS, ITERATIONS, WARM_ITERATIONS, Order, group
from open_vc_attn.baselines.vc import quantize
from open_vc_attn.quality.clip import load_clip
from open_vc_attn.quality.model import load_model
from open_vc_attn.quality.numerics import LIBRARY, parse
from open_vc_attn.quality.report import to_json, to_table
from open_vc_attn.quality.study import Outcome, Settings, Study

SHAPES = ((73_397, 7), (39_600, 7))
STEPS = 40
"""Denoising steps over which costs are averaged: the paper's Wan2.2."""
ATTENTION, KERNEL = "attention call", "attention kernel"
COLD, WARM = "grouping, cold", "grouping, warm"
PLAIN, SORTED, DEMEANED = "preparation", "preparation, sorted", "preparation, sorted, without means"
QK_FORMAT = "e4m3"  # this library's; the cost of V-Smooth does not depend on it
NUMERICS = (
    *("vc-attention", "vc-attention:v_smooth=false", "vc-attention:probabilities=exponential"),
    *("vc-attention:v_smooth=false,probabilities=exponential", LIBRARY),
    *("exact exact pc", "exact exact km", "exact exact c1m7", "exact exact c1m15"),
)
TIMED_SECONDS, LEAD_IN_SECONDS, WARM_UP_SECONDS = 0.3, 0.12, 1.0


def parse_arguments(command_line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, help="the record, a JSON file")
    add("--model", type=Path, help="folder of minidit_weights.safetensors, for the errors")
    add("--frames", help="a video, a pattern of images, a .npy file, 'synthetic'")
    add("--start", type=int, default=640, help="first frame (640)")
    add("--count", type=int, default=44, help="frames (44)")
    add("--size", type=int, nargs=2, default=(360, 640), help="height and width (360 640)")
    add("--steps", type=int, default=18, help="denoising steps of the errors (18)")
    add("--seeds", type=int, default=2, help="samples of the noise (2)")
    add("--numerics", nargs="+", default=NUMERICS, help="what to measure the errors of")
    add("--rounds", type=int, default=5, help="rounds of the timing (5)")
    add("--budget", type=float, default=450.0, help="seconds after which no numerics begins (450)")
    add("--commit", help="commit that must be measured; else an error")
    parser.set_defaults(quick=False)
    arguments = parser.parse_args(command_line)
    if (arguments.model is None) != (arguments.frames is None):
        parser.error("--model and --frames go together: errors need both")
    for name in arguments.numerics:
        try:
            parse(name).steps(arguments.steps)
        except ValueError as error:
            parser.error(str(error))
    return arguments


def launches_of(inputs: Inputs) -> dict[str, Launch]:
    """What is timed."""
    operands = Operands(*inputs.tensors)
    v = heads_first(operands.v)
    permutation, centroids = group(v, CLUSTERS, ITERATIONS)
    prepared = open_vc_attn.prepare_fp8(*inputs.tensors)
    return {
        ATTENTION: lambda: open_vc_attn.attention(*inputs.tensors),
        KERNEL: lambda: open_vc_attn.attention_fp8(prepared),
        COLD: lambda: group(heads_first(operands.v), CLUSTERS, ITERATIONS),
        WARM: lambda: group(heads_first(operands.v), CLUSTERS, WARM_ITERATIONS, centroids),
        PLAIN: lambda: quantize(operands, QK_FORMAT, Order(None, demean=False)),
        SORTED: lambda: quantize(operands, QK_FORMAT, Order(permutation, demean=False)),
        DEMEANED: lambda: quantize(operands, QK_FORMAT, Order(permutation, demean=True)),
    }


def milliseconds(inputs: Inputs, rounds: int, monitor: GpuMonitor) -> dict[str, float]:
    """Median time of each launch."""
    launches = launches_of(inputs)
    estimates = {name: estimate_ms(launch) for name, launch in launches.items()}
    warm_up(launches[ATTENTION], estimates[ATTENTION], WARM_UP_SECONDS)
    plan = Plan(rounds, TIMED_SECONDS, LEAD_IN_SECONDS)
    timings = paired_rounds(launches, estimates, plan, monitor)
    return {name: median(timing.launches) for name, timing in timings.items()}


def kinds_of_steps(steps: int) -> list[str]:
    """What each step of a sampler does under the rules of VSmoothState: cold, warm, reused, late."""
    state, kinds, grouped = VSmoothState(steps), [], None
    for step in range(steps):
        if state.is_due(step, grouped):
            kinds.append("cold" if grouped is None else "warm")
            grouped = step
        else:
            kinds.append("reused" if step < state.grouped_steps else "late")
    return kinds


def overheads(ms: Mapping[str, float], steps: int = STEPS) -> dict[str, float]:
    """What V-Smooth adds to a call, in percent of the attention call."""
    means, moves = ms[DEMEANED] - ms[PLAIN], ms[SORTED] - ms[PLAIN]
    grouping = {"cold": ms[COLD], "warm": ms[WARM], "reused": 0.0, "late": 0.0}
    extra = {"cold": means, "warm": means, "reused": means, "late": moves}
    kinds = kinds_of_steps(steps)
    percent = 100 / ms[ATTENTION]
    result = {
        "grouping_cold": grouping["cold"],
        "grouping_warm": grouping["warm"],
        "sorting_and_means": means,
        "sorting": moves,
        "step_with_cold_grouping": grouping["cold"] + means,
        "step_with_warm_grouping": grouping["warm"] + means,
        "all_steps_grouping_alone": sum(grouping[kind] for kind in kinds) / steps,
        "all_steps": sum(grouping[kind] + extra[kind] for kind in kinds) / steps,
    }
    return {name: round(percent * value, 3) for name, value in result.items()}


def simulation(inputs: Inputs) -> dict[str, float]:
    """Time and memory of the baseline itself: it shows errors, not speed."""
    torch.cuda.reset_peak_memory_stats()
    ms = estimate_ms(lambda: vc_attention(*inputs.tensors))
    return {
        "ms": round(ms, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 3),
    }


def costs(rounds: int, monitor: GpuMonitor) -> dict[str, Any]:
    """Costs for each shape."""
    found: dict[str, Any] = {}
    for tokens, heads in SHAPES:
        inputs = gaussian(tokens, heads)
        ms = milliseconds(inputs, rounds, monitor)
        found[f"{tokens}x{heads}"] = {
            "ms": {name: round(value, 4) for name, value in ms.items()},
            "percent_of_attention": overheads(ms),
            "vc_attention": simulation(inputs),
        }
        torch.cuda.empty_cache()
    return found


def cost_table(found: Mapping[str, Any]) -> str:
    shapes = list(found)
    columns = [*found[shapes[0]]["percent_of_attention"]]
    rows = [["percent of the attention call", *shapes]]
    rows += [
        [name, *(f"{found[shape]['percent_of_attention'][name]:.2f}" for shape in shapes)]
        for name in columns
    ]
    rows.append(["ms"])
    rows += [
        [name, *(f"{found[shape]['ms'][name]:.3f}" for shape in shapes)]
        for name in found[shapes[0]]["ms"]
    ]
    return "\n".join(f"{row[0]:36}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


def write(path: Path, record: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def main(command_line: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(command_line)
    begin = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    with GpuMonitor() as monitor:
        about = environment(arguments, monitor)
        progress("costs")
        found = costs(arguments.rounds, monitor)
    first = next(iter(found.values()))
    details: dict[str, Any] = {
        "about": about | {"head_dim": HEAD_DIM, "steps": STEPS, "clusters": CLUSTERS},
        "costs": found,
    }
    record = {
        "v_smooth_overhead_percent": first["percent_of_attention"]["all_steps"],
        "v_smooth": details,
    }
    write(arguments.out, record)
    print(cost_table(found), flush=True)
    if arguments.model is None:
        return 0
    model = load_model(arguments.model, "cuda")
    clip = load_clip(arguments.frames, arguments.start, arguments.count, *arguments.size)
    settings = Settings(arguments.steps, arguments.seeds, "bfloat16")
    study = Study(model, clip, settings, progress)
    outcomes: list[Outcome] = []
    for name in arguments.numerics:
        if time.monotonic() - begin > arguments.budget:
            progress(f"left out, the time is spent: {name}")
            continue
        outcomes += study.measure([name])
        details["study"] = to_json(study, outcomes, {"frames": Path(arguments.frames).name})
        write(arguments.out, record)
    if outcomes:
        print(to_table(study, outcomes), end="")
    return 0 if len(outcomes) == len(arguments.numerics) else 1


if __name__ == "__main__":
    sys.exit(main())
