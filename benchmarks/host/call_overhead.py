# SPDX-License-Identifier: BSD-3-Clause
"""What one call costs the host, layer by layer, beside torch's own attention.

    python benchmarks/host/call_overhead.py [--tokens 128 512] [--heads 8] [--json FILE]

"host" is the time until a call returns: on a GPU it has only queued its work, and few enough calls
are queued between two synchronisations that the host never waits for room. "period" is the time per
call when the device has finished them all: the larger of host and device time. On the CPU, where a
call returns when it is done, both are the time of the work, so that short tokens show the overhead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

import open_vc_attn
from open_vc_attn import (
    _native_options,
    _openvc,
    attention,
    attention_fp8,
    get_num_threads,
    prepare_fp8,
)
from open_vc_attn._torch_arrays import TORCH

HEAD_DIM = 128
WARM_UP_CALLS = 20
MICROSECONDS = 1e6
OPERATOR_OPTIONS = _native_options.call_options(False, None, "mid_window", None)


def at_least(smallest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if number < smallest:
            raise argparse.ArgumentTypeError(f"found {text}; expected a number from {smallest} on")
        return number

    return read


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default_device)
    parser.add_argument("--tokens", type=at_least(1), nargs="+", default=[128, 512, 2048, 4096])
    parser.add_argument("--heads", type=at_least(1), default=8)
    parser.add_argument(
        "--calls", type=at_least(1), default=50, help="between two synchronisations"
    )
    parser.add_argument(
        "--batches", type=at_least(1), default=40, help="of which the median counts"
    )
    parser.add_argument(
        "--threads", type=at_least(0), default=0, help="of CPU calls; 0 for all CPUs"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def layers(tokens: int, heads: int, device: torch.device) -> dict[str, Callable[[], Any]]:
    """The same attention from the outside inwards, then what else a caller could do."""
    q, k, v = (
        torch.randn(tokens, heads, HEAD_DIM, device=device).to(torch.bfloat16) for _ in range(3)
    )
    out = torch.empty_like(q)
    prepared = prepare_fp8(q, k, v)
    attention(q, k, v)
    heads_first = [x[None].transpose(1, 2) for x in (q, k, v)]
    on_gpu = device.type == "cuda"

    # Memory that nobody allocates during the call, as large as the call asks for.
    scratch: list[torch.Tensor] = []

    def allocate(size: int) -> torch.Tensor:
        if not scratch or scratch[0].numel() < size:
            scratch[:] = [torch.empty(size, dtype=torch.uint8, device=device)]
        return scratch[0]

    options = _native_options.native_options(False, None, "mid_window", None)
    stream, _ = TORCH.execution(TORCH.output_spec(q))
    binding = partial(
        _openvc.attention,
        *(TORCH.view(name, x) for name, x in (("q", q), ("k", k), ("v", v), ("out", out))),
        0,
        options,
        get_num_threads(),
        stream,
        allocate if on_gpu else None,
    )
    keep = (out, scratch)  # the binding holds addresses only
    return {
        "attention(q, k, v)": lambda: attention(q, k, v),
        "torch.ops.open_vc_attn.attention": lambda: torch.ops.open_vc_attn.attention.default(
            q, k, v, *OPERATOR_OPTIONS
        ),
        "binding, memory at hand": lambda keep=keep: binding(),
        "attention_fp8(prepared)": lambda: attention_fp8(prepared),
        "scaled_dot_product_attention": lambda: scaled_dot_product_attention(*heads_first),
        "torch.empty_like(q)": lambda: torch.empty_like(q),
    }


def measure(call: Callable[[], Any], calls: int, batches: int, on_gpu: bool) -> dict[str, float]:
    """Median over the batches, in microseconds per call."""
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(WARM_UP_CALLS):
        call()
    host, period = [], []
    for _ in range(batches):
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        queued = time.perf_counter()
        synchronize()
        end = time.perf_counter()
        host.append((queued - begin) / calls)
        period.append((end - begin) / calls)
    return {
        "host_us": round(statistics.median(host) * MICROSECONDS, 2),
        "period_us": round(statistics.median(period) * MICROSECONDS, 2),
    }


def print_table(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    lengths = list(figures)
    names = list(figures[lengths[0]])
    width = max(map(len, names))
    print(f"{'host / period, us':<{width}}" + "".join(f"{'S ' + s:>19}" for s in lengths))
    for name in names:
        cells = [figures[length][name] for length in lengths]
        print(
            f"{name:<{width}}"
            + "".join(f"{cell['host_us']:>10.1f} /{cell['period_us']:>7.1f}" for cell in cells)
        )


def main() -> None:
    arguments = parse_arguments()
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    open_vc_attn.set_num_threads(arguments.threads)
    figures = {}
    with torch.no_grad():
        for tokens in arguments.tokens:
            figures[str(tokens)] = {
                name: measure(call, arguments.calls, arguments.batches, on_gpu)
                for name, call in layers(tokens, arguments.heads, device).items()
            }
    print_table(figures)
    if arguments.json:
        record = {
            "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "open_vc_attn": open_vc_attn.__version__,
            "heads": arguments.heads,
            "calls": arguments.calls,
            "batches": arguments.batches,
            "us_by_tokens": figures,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
