# SPDX-License-Identifier: BSD-3-Clause
"""Holds the clock model to what an H200 did (docs/machine_model.md).

    build/dev/model/openvc_timeline --clocks > clocks.txt
    python3 tools/timing_table.py clocks.txt

Reads docs/results/model/h200_low_work.json, writes docs/results/model/timing.json and prints the
table of docs/machine_model.md.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs/results/model"
KEY_BLOCK = 128
THREAD_BLOCKS = 8  # of a launch: the fewest, where the clock is steadiest
# By these the constants marked "calibrated" were chosen.
CALIBRATION = (
    "dense",
    "dense_wide_still",
    "two_stages",
    "single_block_two_stages",
    "one_score_buffer",
    "two_steps_1",
    "four_steps_0",
)
# The reference on a B200: 73,397 tokens, 56 heads, tiles of 256 rows, one a thread block; its time
# was taken at one of two clocks.
TOKENS, HEADS, TILE_ROWS, MULTIPROCESSORS = 73397, 56, 256, 148
REFERENCE_MS = 57.3
MEGAHERTZ = (1372, 1965)


def read_predictions(path: Path) -> dict[str, float]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: float(clocks) for name, _, clocks in lines}


def read_measurements() -> dict[str, float]:
    """Clocks a block: the slope between the shortest and the longest launch."""
    launches: dict[str, dict[int, float]] = {}
    for launch in json.loads((RESULTS / "h200_low_work.json").read_text())["launches"]:
        if launch["thread_blocks"] == THREAD_BLOCKS:
            launches.setdefault(launch["variant"], {})[launch["keys"]] = launch["clocks"]
    return {
        name: (clocks[max(clocks)] - clocks[min(clocks)]) * KEY_BLOCK / (max(clocks) - min(clocks))
        for name, clocks in launches.items()
    }


def reference(clocks: float) -> dict[str, object]:
    """Milliseconds of the whole call; what happens once a tile is left out."""
    tiles = math.ceil(TOKENS / TILE_ROWS) * HEADS
    blocks = math.ceil(tiles / MULTIPROCESSORS) * math.ceil(TOKENS / KEY_BLOCK)
    return {
        "clocks_per_block_predicted": clocks,
        "milliseconds_predicted": {
            str(mhz): round(blocks * clocks / mhz * 1e-3, 1) for mhz in MEGAHERTZ
        },
        "milliseconds_measured": REFERENCE_MS,
        "clocks_per_block_measured": {
            str(mhz): round(REFERENCE_MS * mhz * 1e3 / blocks) for mhz in MEGAHERTZ
        },
    }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    predicted = read_predictions(Path(sys.argv[1]))
    variants = []
    for name, measured in read_measurements().items():
        error = 100 * (predicted[name] / measured - 1)
        variants.append(
            {
                "variant": name,
                "measured": round(measured, 1),
                "predicted": predicted[name],
                "error_percent": round(error, 1),
                "held_out": name not in CALIBRATION,
            }
        )
    errors = [abs(v["error_percent"]) for v in variants]
    held_out = [abs(v["error_percent"]) for v in variants if v["held_out"]]
    summary = {
        "unit": "clocks per block of 128 keys and multiprocessor",
        "mean_error_percent": round(sum(errors) / len(errors), 2),
        "worst_error_percent": max(errors),
        "held_out_variants": len(held_out),
        "held_out_mean_error_percent": round(sum(held_out) / len(held_out), 2),
        "held_out_worst_error_percent": max(held_out),
    }
    record = {
        **summary,
        "variants": variants,
        "b200_predictions": {
            name: clocks
            for name, clocks in predicted.items()
            if name not in {v["variant"] for v in variants}
        },
        "reference_b200": reference(predicted["reference"]),
    }
    (RESULTS / "timing.json").write_text(json.dumps(record, indent=1) + "\n")
    print("| variant | measured | predicted | error | held out |\n|---|--:|--:|--:|---|")
    for v in variants:
        print(
            f"| {v['variant']} | {v['measured']:.1f} | {v['predicted']:.1f} |"
            f" {v['error_percent']:+.1f} % | {'yes' if v['held_out'] else ''} |"
        )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
