# SPDX-License-Identifier: BSD-3-Clause
"""Speed and error of attention on an NVIDIA GPU: this library beside the others, in one run.

    python benchmarks/h200/attention.py --out results --minidit FOLDER --clips FOLDER \\
        [--budget SECONDS] [--ceiling build/.../wgmma_ceiling] [--resume] [--quick]

Writes results.json (everything, after every step) and summary.json (the figures of the
documentation) and prints the tables. report.py turns the two into Markdown and charts. --resume
keeps the steps that a results.json already has; what ended the last run's process is left out.
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
from measurements import Benchmark
from report import markdown
from results import DeviceLost, Results
from steps import ROUNDS, Step, all_steps, captured_inputs, quick_steps, run
from summary import summarize

import open_vc_attn

DEFAULT_BUDGET = 440.0  # seconds; enough for every step
QUICK_BUDGET = 60.0
EXIT_DEVICE_LOST = 3


def parse_arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--minidit", type=Path, help="folder of minidit.py and its weights")
    parser.add_argument("--clips", type=Path, help="folder of vtest.avi, Megamind.avi, tree.avi")
    parser.add_argument("--quick", action="store_true", help="two shapes, fewer rounds: 1 minute")
    parser.add_argument("--resume", action="store_true", help="keep the steps that are done")
    parser.add_argument("--budget", type=float, help="seconds for this call (440; quick: 60)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds for each shape (7)")
    parser.add_argument("--ceiling", type=Path, help="the program wgmma_ceiling")
    parser.add_argument("--commit", help="commit that must be measured; else an error")
    parser.add_argument("--only", help="run only steps whose name contains this")
    parser.add_argument("--list", action="store_true", help="list contenders and stop")
    arguments = parser.parse_args(command_line)
    if (arguments.minidit is None) != (arguments.clips is None):
        parser.error("--minidit and --clips go together: the captures need both")
    if arguments.rounds < 1:
        parser.error(f"--rounds: {arguments.rounds}; expected at least 1")
    if arguments.budget is None:
        arguments.budget = QUICK_BUDGET if arguments.quick else DEFAULT_BUDGET
    return arguments


def measured_commit(claimed: str | None) -> str:
    """The commit of the installed package; what the caller says where the package does not know."""
    installed: str = open_vc_attn.info()["commit"]
    if claimed is None or installed == "unknown":
        return claimed or installed
    if not installed.startswith(claimed) and not claimed.startswith(installed):
        raise SystemExit(
            f"--commit: {claimed}, but the open_vc_attn that is installed is of {installed}; install "
            "that commit (pip install .), or leave --commit out"
        )
    return installed


def environment(arguments: argparse.Namespace, monitor: GpuMonitor) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": measured_commit(arguments.commit),
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


def measure_ceiling(program: Path) -> dict[str, Any]:
    command = [str(program.resolve()), "--seconds", "1.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program}: exit status {done.returncode}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def chosen_steps(
    arguments: argparse.Namespace, benchmark: Benchmark, results: Results
) -> list[Step]:
    steps = []
    if arguments.ceiling is not None:
        steps.append(Step("ceiling", 5, lambda _: measure_ceiling(arguments.ceiling)))
    if arguments.quick:
        steps += quick_steps(benchmark)
    else:
        captured = None
        if arguments.minidit is not None:
            captured = partial(captured_inputs, arguments.minidit, arguments.clips, results)
        steps += all_steps(benchmark, results, captured, arguments.rounds)
    return [step for step in steps if arguments.only is None or arguments.only in step.name]


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("attention.py: no CUDA device", file=sys.stderr)
        return 2
    torch.set_grad_enabled(False)
    results = Results(arguments.out, arguments.budget, arguments.resume)

    def write_summary() -> None:
        text = json.dumps(summarize(results.data), indent=1) + "\n"
        (arguments.out / "summary.json").write_text(text)

    with GpuMonitor() as monitor:
        benchmark = Benchmark(all_contenders(), monitor, results)
        results.describe(
            environment=environment(arguments, monitor),
            versions=benchmark.versions,
            absent=benchmark.absent,
            kinds={contender.name: contender.kind for contender in all_contenders()},
            scopes={contender.name: contender.scope for contender in all_contenders()},
        )
        for name, version in benchmark.versions.items():
            print(f"{name}: {version}")
        for name, reason in benchmark.absent.items():
            print(f"{name}: not taking part: {reason}")
        if arguments.list:
            return 0
        try:
            run(chosen_steps(arguments, benchmark, results), results, write_summary)
        except DeviceLost as error:
            results.save()
            print(f"attention.py: the GPU context is lost ({error}); go on with --resume")
            return EXIT_DEVICE_LOST
    print(markdown(summarize(results.data), results.data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
