# SPDX-License-Identifier: BSD-3-Clause
"""Speed and error of attention on a Hopper GPU: this library beside the others, in one run.

    python benchmarks/h200/attention.py --out results [--quick] [--ceiling build/.../wgmma_ceiling]

Writes results.json (everything, after every step) and summary.json (the figures of the
documentation) and prints a table. report.py turns the two into Markdown and a chart. With --resume
a run that crashed goes on where it stopped, without the contender that crashed it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contenders import all_contenders
from gpu_monitor import GpuMonitor
from inputs import captures, channel_outliers, gaussian
from measurements import Benchmark, shape_name
from paired_timing import Plan
from report import markdown
from results import DeviceLost, Results
from summary import summarize

# Tokens x heads: Wan 2.1 at 720p on 8, 4 and 1 GPUs and more, a power of two, Wan at 480p.
SHAPES = [(73_397, 7), (73_397, 56), (32_768, 16), (32_760, 40), (73_397, 14)]
QUICK_SHAPES = [(73_397, 7), (32_768, 16)]
LENGTHS = [32_639, 32_640, 32_641, 32_700, 32_760, 32_767, 32_768, 32_769]
SHORT_TOKENS = [512, 1024, 2048, 4096, 8192]
SHORT_HEADS = [8, 24]
PREPARED_SHAPES = [(73_397, 56), (73_397, 7), (32_760, 56), (32_760, 7), (4096, 56), (4096, 7)]
REPAIR_BUDGETS = [0.005, 0.01, 0.02]
ALL_KINDS = ("openvc", "bf16", "fp8")

EXIT_DEVICE_LOST = 3


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="two shapes, fewer rounds: 1 minute")
    parser.add_argument("--resume", action="store_true", help="keep the steps that are done")
    parser.add_argument("--budget", type=float, help="seconds for everything (240; quick: 60)")
    parser.add_argument("--rounds", type=int, help="rounds for each shape (7; quick: 3)")
    parser.add_argument("--ceiling", type=Path, help="the program wgmma_ceiling")
    parser.add_argument("--commit", help="commit that is measured; default: git's HEAD")
    parser.add_argument("--only", help="run only steps whose name contains this")
    parser.add_argument("--list", action="store_true", help="list contenders and stop")
    return parser.parse_args()


def git_commit() -> str:
    root = Path(__file__).resolve().parents[2]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def environment(arguments: argparse.Namespace, monitor: GpuMonitor) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": arguments.commit or git_commit(),
        "driver": monitor.driver,
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "power_limit_watts": monitor.power_limit_watts,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": sys.version.split()[0],
        "quick": arguments.quick,
    }


def measure_ceiling(program: Path, quick: bool) -> dict[str, Any]:
    seconds = "0.4" if quick else "1.0"
    command = [str(program.resolve()), "--seconds", seconds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program}: exit status {done.returncode}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_steps(arguments: argparse.Namespace, benchmark: Benchmark, results: Results) -> None:
    quick = arguments.quick

    def step(name: str, measure: Any, **options: Any) -> None:
        if arguments.only is None or arguments.only in name:
            results.step(name, measure, **options)
            write_summary(arguments.out, results)

    if arguments.ceiling is not None:
        step("ceiling", lambda: measure_ceiling(arguments.ceiling, quick))
    step("copy", benchmark.copy_bandwidth)

    cases: dict[str, Any] = {"gaussian_32768": partial(gaussian, 32_768, 2)}
    cases |= {name: lambda x=inputs: x for name, inputs in captures()}
    cases["gaussian_v_plus_1_32768"] = partial(gaussian, 32_768, 2, value_offset=1.0)
    if not quick:
        cases["gaussian_131072"] = partial(gaussian, 131_072, 2)
        cases["gaussian_v_plus_1_131072"] = partial(gaussian, 131_072, 2, value_offset=1.0)
        cases["channel_outliers_32768"] = partial(channel_outliers, 32_768, 2)
    for name, make in cases.items():
        step(f"accuracy {name}", lambda m=make: benchmark.accuracy(m(), ALL_KINDS))

    rounds = arguments.rounds or (3 if quick else 7)
    plan = Plan(rounds, timed_seconds=0.25 if quick else 0.3, lead_in_seconds=0.12)
    shapes = QUICK_SHAPES if quick else SHAPES
    for index, (tokens, heads) in enumerate(shapes):
        # What comes after the shapes takes about as long as one of them.
        share = 1.0 / (len(shapes) - index + 1)
        step(
            f"speed {shape_name(tokens, heads)}",
            lambda t=tokens, h=heads, s=share: benchmark.speed(gaussian(t, h), plan, s),
            needs_seconds=5.0,
        )
    copy = results.steps.get("copy")
    if copy is not None:
        prepared = PREPARED_SHAPES[:2] if quick else PREPARED_SHAPES
        step(
            "preparation",
            lambda: benchmark.preparation(prepared, copy["bytes_per_second"]),
            needs_seconds=3.0,
        )
    step(
        "repair",
        lambda: benchmark.repair(73_397, 7, REPAIR_BUDGETS[:1] if quick else REPAIR_BUDGETS),
        needs_seconds=5.0,
    )
    for heads in SHORT_HEADS[:1] if quick else SHORT_HEADS:
        step(
            f"short {heads} heads",
            lambda h=heads: benchmark.short_calls(SHORT_TOKENS, h),
            needs_seconds=5.0,
        )
    if not quick:
        step("lengths", lambda: benchmark.lengths(LENGTHS, 16), needs_seconds=5.0)


def write_summary(folder: Path, results: Results) -> None:
    text = json.dumps(summarize(results.data), indent=1) + "\n"
    (folder / "summary.json").write_text(text)


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("attention.py: no CUDA device", file=sys.stderr)
        return 2
    budget = arguments.budget or (60.0 if arguments.quick else 240.0)
    torch.set_grad_enabled(False)
    results = Results(arguments.out, budget, arguments.resume)
    with GpuMonitor() as monitor:
        benchmark = Benchmark(all_contenders(), monitor, results)
        results.data["environment"] = environment(arguments, monitor)
        results.data["versions"] = benchmark.versions
        results.data["absent"] = benchmark.absent
        results.data["kinds"] = {contender.name: contender.kind for contender in all_contenders()}
        results.save()
        for name, version in benchmark.versions.items():
            print(f"{name}: {version}")
        for name, reason in benchmark.absent.items():
            print(f"{name}: not taking part: {reason}")
        if arguments.list:
            return 0
        try:
            run_steps(arguments, benchmark, results)
        except DeviceLost as error:
            results.save()
            print(f"attention.py: the GPU context is lost ({error}); go on with --resume")
            return EXIT_DEVICE_LOST
    write_summary(arguments.out, results)
    print(markdown(summarize(results.data), results.data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
