# SPDX-License-Identifier: BSD-3-Clause
"""Random calls on a GPU against exact attention and the CPU backend, for as long as asked.

    python tests/gpu/soak.py --seconds 180 [--seed 1] [--json summary.json]

Shapes, strides, element types, masks, plans, repair budgets, streams and kinds of input are drawn at
random; calls run directly, on inputs that were prepared once, and as replays of a graph whose inputs
change. Every call runs several times, on two streams, and must give the same bits. Ends with the line
'N passed, N failed'; --json writes how many cases there were of each kind and how close the worst of
them came to the limits of soak_judge.py.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import soak_judge
import torch
from soak_case import draw_case, run_case

from open_vc_attn import info

MAX_FAILURES = 20  # then it stops
REPORT_SECONDS = 15


class Summary:
    """What --json writes."""

    def __init__(self, seed: int, device: str) -> None:
        self.cases = 0
        self.failures: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.worst: dict[str, dict[str, Any]] = {}
        self.seed = seed
        self.device = torch.cuda.get_device_name() if device == "cuda" else device
        self.start = time.monotonic()

    def add(self, kinds: list[str], verdict: soak_judge.Verdict, description: str) -> None:
        self.cases += 1
        self.kinds.update(kinds)
        if verdict.fault:
            self.failures.append(f"{verdict.fault}: {description}")
        measured = {f"share of the {name} limit": x for name, x in verdict.shares.items()}
        # What the GPU adds to the error that both backends have.
        measured["relative L2 beyond the CPU's"] = verdict.relative_l2 - verdict.cpu_relative_l2
        for name, value in measured.items():
            if name not in self.worst or value > self.worst[name]["value"]:
                self.worst[name] = {"value": value, "case": description}

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def to_json(self) -> str:
        return json.dumps(
            {
                "soak_cases": self.cases,
                "soak_failures": len(self.failures),
                "seconds": round(self.seconds(), 1),
                "seed": self.seed,
                "device": self.device,
                "version": info()["version"],
                "kinds": dict(sorted(self.kinds.items())),
                "worst": self.worst,
                "failed": self.failures,
            },
            indent=1,
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=None, help="stop after so many cases")
    parser.add_argument("--json", type=Path, default=None, help="where the summary goes")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu tests the soak itself"
    )
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("soak: no GPU here")
        return 1
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    summary = Summary(options.seed, options.device)
    report = 0.0
    while (
        summary.seconds() < options.seconds
        and summary.cases != options.cases
        and len(summary.failures) < MAX_FAILURES
    ):
        case = draw_case(rng, options.device)
        try:
            verdict = run_case(rng, case, options.device)
        except Exception as error:  # whatever a call throws is a finding, and the soak goes on
            verdict = soak_judge.Verdict(f"{type(error).__name__}: {error}")
        summary.add(case.kinds(), verdict, case.describe())
        if verdict.fault:
            print(summary.failures[-1], flush=True)
        if summary.seconds() - report > REPORT_SECONDS:
            report = summary.seconds()
            failed = len(summary.failures)
            print(
                f"soak: {report:.0f} s, {summary.cases - failed} passed, {failed} failed",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(summary.to_json() + "\n")
    failed = len(summary.failures)
    print(f"{summary.cases - failed} passed, {failed} failed")
    return 1 if failed or not summary.cases else 0


if __name__ == "__main__":
    sys.exit(main())
