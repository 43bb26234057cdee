# SPDX-License-Identifier: BSD-3-Clause
"""What the numerics cost the model's output and what they gain in speed, on the same tensors.

    python benchmarks/h200/quality.py --model FOLDER --frames vtest.avi --out quality.json \\
        --preset default=library --preset fast=library:budget=fast [--merge FILE]

Errors: `open-vc-attn quality` in this process. Speed: Q, K and V of all layers and heads at one
noise level in one call, beside FlashAttention-3 in BF16, in shuffled rounds. docs/quality.md
describes the record. It is written after each part, and needs about three minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from attention import environment
from contenders import Call, FlashAttention3
from gpu_monitor import GpuMonitor
from inputs import Inputs
from paired_timing import Launch, Plan, Timing, estimate_ms, median_ratio, paired_rounds, warm_up

import open_vc_attn
from open_vc_attn.quality.clip import load_clip
from open_vc_attn.quality.model import load_model
from open_vc_attn.quality.numerics import LIBRARY, library_arguments, parse
from open_vc_attn.quality.report import to_json, to_table
from open_vc_attn.quality.study import NOISE_LEVELS, Outcome, Settings, Study

SIMULATIONS = {"sage2_like": "sage2-like", "reference": "reference"}
"""Keys of the record whose numerics are simulated: errors alone."""
PRESET = re.compile(rf"(?P<key>\w+)=(?P<numerics>{LIBRARY}(?::.+)?)")
PEER = FlashAttention3.name
TIMED_SECONDS, LEAD_IN_SECONDS, WARM_UP_SECONDS = 0.3, 0.12, 1.0
EXIT_FAILURE = 1


@dataclass(frozen=True)
class Preset:
    """Numerics of the library under a key of the record."""

    key: str
    numerics: str

    @classmethod
    def read(cls, text: str) -> Preset:
        match = PRESET.fullmatch(text)
        if match is None or match["key"] in SIMULATIONS:
            raise argparse.ArgumentTypeError(
                f"{text!r}; expected KEY={LIBRARY}[:option=value,...], and none of "
                f"{', '.join(SIMULATIONS)} as KEY"
            )
        try:
            parse(match["numerics"])
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return cls(match["key"], match["numerics"])

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of prepare_fp8() and attention()."""
        options = self.numerics.partition(":")[2]
        return library_arguments(options) if options else {}


def parse_arguments(command_line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder of minidit_weights.safetensors")
    add("--frames", required=True, help="a video, a pattern of images, a .npy file, 'synthetic'")
    add("--out", type=Path, required=True, help="the record, a JSON file")
    add("--preset", type=Preset.read, action="append", help="KEY=library[:option=value,...]")
    add("--merge", type=Path, action="append", default=[], help="JSON object of further keys")
    add("--start", type=int, default=640, help="first frame (640)")
    add("--count", type=int, default=44, help="frames (44)")
    add("--size", type=int, nargs=2, default=(360, 640), help="height and width (360 640)")
    add("--steps", type=int, default=18, help="denoising steps (18)")
    add("--seeds", type=int, default=4, help="samples of the noise (4)")
    add("--noise", type=float, default=NOISE_LEVELS[1], help="noise level of the speed (0.6)")
    add("--rounds", type=int, default=7, help="rounds of the speed (7)")
    add("--commit", help="commit that must be measured; else an error")
    parser.set_defaults(quick=False)
    arguments = parser.parse_args(command_line)
    arguments.preset = arguments.preset or [Preset("default", LIBRARY)]
    keys = [preset.key for preset in arguments.preset]
    if len(set(keys)) < len(keys):
        parser.error(f"--preset: {', '.join(keys)}; expected each key once")
    for path in arguments.merge:
        if not path.is_file():
            parser.error(f"--merge: {path}; expected a file")
    return arguments


def errors(outcome: Outcome) -> dict[str, Any]:
    """The keys that every entry of the record has."""
    return {
        "numerics": outcome.numerics.name,
        "velocity_error_percent": round(outcome.velocity_error, 4),
        "psnr_db": round(outcome.psnr, 3),
        "ssim": round(outcome.ssim, 6),
    }


def calls_of(preset: Preset, inputs: Inputs) -> dict[str, Launch]:
    """The attention kernel on prepared inputs, and the complete call."""
    prepared = open_vc_attn.prepare_fp8(*inputs.tensors, **preset.arguments)
    return {
        f"{preset.key} kernel": lambda: open_vc_attn.attention_fp8(prepared),
        f"{preset.key} call": lambda: open_vc_attn.attention(*inputs.tensors, **preset.arguments),
    }


def time_calls(
    inputs: Inputs, presets: Sequence[Preset], rounds: int, monitor: GpuMonitor
) -> tuple[dict[str, Timing], str]:
    """Timings by name, and the peer's version or why it is missing."""
    launches: dict[str, Launch] = {}
    for preset in presets:
        launches.update(calls_of(preset, inputs))
    peer = FlashAttention3()
    try:
        version = peer.version()
        call: Call = peer.set_up(inputs)
        call.launch()
        launches[PEER] = call.launch
    except Exception as error:  # an extension built for another torch fails in many ways
        version = f"absent: {type(error).__name__}: {error}"
    estimates = {name: estimate_ms(launch) for name, launch in launches.items()}
    first = next(iter(launches))
    warm_up(launches[first], estimates[first], WARM_UP_SECONDS)
    plan = Plan(rounds, TIMED_SECONDS, LEAD_IN_SECONDS)
    return paired_rounds(launches, estimates, plan, monitor), version


def speeds(
    key: str, timings: Mapping[str, Timing], flops: float, monitor: GpuMonitor
) -> dict[str, Any]:
    """Speed of one preset, without prefix that of the kernel on prepared inputs."""
    result: dict[str, Any] = {}
    for kind, prefix in (("kernel", ""), ("call", "call_")):
        timing = timings[f"{key} {kind}"]
        result[f"{prefix}tflops"] = timing.describe(monitor, flops)["tflops"]
        if PEER in timings:
            result[f"{prefix}ratio_fa3_bf16"] = round(median_ratio(timings[PEER], timing), 4)
    return result


def merged(record: dict[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The record with what other programs measured; nobody's key is replaced."""
    for path in files:
        more = json.loads(path.read_text())
        taken = sorted(set(more) & set(record)) if isinstance(more, dict) else ["no object"]
        if taken:
            raise ValueError(f"--merge: {path}: {', '.join(taken)}; expected an object of new keys")
        record = record | more
    return record


def write(path: Path, record: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


def main(command_line: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(command_line)
    merged({}, arguments.merge)
    begin = time.monotonic()

    def progress(text: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {text}", file=sys.stderr, flush=True)

    model = load_model(arguments.model, "cuda")
    clip = load_clip(arguments.frames, arguments.start, arguments.count, *arguments.size)
    study = Study(model, clip, Settings(arguments.steps, arguments.seeds, "bfloat16"), progress)
    presets = {preset.key: preset.numerics for preset in arguments.preset}
    names = presets | SIMULATIONS
    outcomes = dict(zip(names, study.measure(list(names.values())), strict=True))
    print(to_table(study, list(outcomes.values())), end="")
    record: dict[str, Any] = {key: errors(outcome) for key, outcome in outcomes.items()}
    with GpuMonitor() as monitor:
        about = environment(arguments, monitor) | {
            "frames": f"{Path(arguments.frames).name} from {arguments.start}",
            "speed_noise": arguments.noise,
            "study": to_json(study, list(outcomes.values()), {}),
        }
        write(arguments.out, merged(record | {"about": about}, arguments.merge))
        progress("speed")
        inputs = Inputs(*study.capture(arguments.noise))
        torch.cuda.empty_cache()
        timings, version = time_calls(inputs, arguments.preset, arguments.rounds, monitor)
        for key in presets:
            record[key] |= speeds(key, timings, inputs.flops, monitor)
        about["flash_attention_3"] = {"version": version}
        if PEER in timings:
            about["flash_attention_3"] |= timings[PEER].describe(monitor, inputs.flops)
    write(arguments.out, merged(record | {"about": about}, arguments.merge))
    progress(json.dumps({key: record[key] for key in presets}))
    return 0 if PEER in timings else EXIT_FAILURE


if __name__ == "__main__":
    sys.exit(main())
