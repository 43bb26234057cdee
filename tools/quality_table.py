#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of numerics of docs/quality.md from what `open-vc-attn quality --json` measured.

Usage: tools/quality_table.py RESULT.json [DOCUMENT]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "quality.md"
BEGIN = "<!-- quality table: written by tools/quality_table.py -->"
END = "<!-- end of quality table -->"


def table(result: dict[str, Any]) -> str:
    """Markdown: a caption, and a row for each numerics."""
    clip = result["clip"]
    levels = [f"{level:g}" for level in result["noise_levels"]]
    seeds = f"{result['seeds']} seed{'s' if result['seeds'] > 1 else ''}"
    lines = [
        f"{Path(clip['source']).name} from frame {clip['start']}, {clip['frames']} frames of "
        f"{clip['height']} x {clip['width']}: {result['tokens']:,} tokens; {result['steps']} steps, "
        f"{seeds}; {result['device']}, the rest of the model in {result['dtype']}; version "
        f"{result['version']}.",
        "",
        f"| numerics | velocity error, % | at noise {', '.join(levels)} | PSNR, dB | SSIM |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["numerics"]:
        errors = ", ".join(f"{x:.2f}" for x in row["velocity_error_percent_of_noise_levels"])
        psnr = "same" if row["psnr_db"] is None else f"{row['psnr_db']:.1f}"
        lines.append(
            f"| `{row['name']}` | {row['velocity_error_percent']:.3f} | {errors} | {psnr} | "
            f"{row['ssim']:.5f} |"
        )
    return "\n".join(lines)


def inserted(document: str, text: str) -> str:
    """The document with the text between the two marks."""
    if document.count(BEGIN) != 1 or document.count(END) != 1:
        raise ValueError(f"expected one line '{BEGIN}' and one line '{END}'")
    head, _, rest = document.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    path = Path(arguments[1]) if len(arguments) == 2 else DOCUMENT
    try:
        result = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        path.write_text(inserted(path.read_text(encoding="utf-8"), table(result)), encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"quality_table: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
