# SPDX-License-Identifier: BSD-3-Clause
"""Q, K and V of a trained video transformer, captured where the benchmark runs.

The model, minidit, its weights and the clips are not part of this repository; `--minidit` and
`--clips` name their folders (docs/benchmarking.md says what must be in them). The captures stay in
the memory of the GPU.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from inputs import HEAD_DIM, Inputs

MODEL_FILE = "minidit.py"
WEIGHTS_FILE = "minidit_weights.safetensors"
LAYERS = 8
HEADS_OF_A_LAYER = 2
NOISE_LEVELS = (0.9, 0.6, 0.3)


class Clip(NamedTuple):
    file: str
    start: int
    """First frame that is used. The model was trained on vtest's frames before 640 and on all of
    the other two clips."""


CLIPS = (Clip("vtest.avi", 640), Clip("Megamind.avi", 0), Clip("tree.avi", 0))
"""tree.avi has 68 frames; a clip that is too short goes on backwards."""


class Crop(NamedTuple):
    frames: int
    height: int
    width: int


WAN_720P = Crop(84, 360, 640)
"""A grid of 21 x 45 x 80 = 75,600 tokens of 4 x 8 x 8 pixels: as many as Wan 2.1 has at 720p."""


@dataclass(frozen=True)
class Source:
    """Where a head comes from."""

    clip: str
    start: int
    sigma: float
    layer: int
    head: int


def choose_heads(
    clips: Sequence[Clip] = CLIPS,
    layers: int = LAYERS,
    noise_levels: Sequence[float] = NOISE_LEVELS,
) -> list[Source]:
    """One head of every layer from every clip. A layer sees another noise level in each clip, and
    its two heads take turns: a balanced choice that no result has influenced."""
    return [
        Source(
            clip.file,
            clip.start,
            noise_levels[(layer + index) % len(noise_levels)],
            layer,
            (layer + index) % HEADS_OF_A_LAYER,
        )
        for index, clip in enumerate(clips)
        for layer in range(layers)
    ]


class Captured(NamedTuple):
    inputs: Inputs
    about: dict[str, Any]
    """For the record: the model, the clips and the source of each head."""


def capture(
    minidit_folder: Path,
    clips_folder: Path,
    *,
    crop: Crop = WAN_720P,
    sources: Sequence[Source] | None = None,
    device: str = "cuda",
) -> Captured:
    """Runs the model once for every clip and noise level and keeps the heads that are asked for."""
    sources = choose_heads() if sources is None else sources
    weights = minidit_folder / WEIGHTS_FILE
    files = {source.clip: clips_folder / source.clip for source in sources}
    for path in (minidit_folder / MODEL_FILE, weights, *files.values()):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: not found; expected what docs/benchmarking.md lists; check the folders"
            )
    minidit = _load(minidit_folder / MODEL_FILE)
    model = minidit.load_model(str(weights), device)
    tensors: list[torch.Tensor] = []
    passes = list(dict.fromkeys((s.clip, s.start, s.sigma) for s in sources))
    videos: dict[tuple[str, int], torch.Tensor] = {}
    for clip, start, sigma in passes:
        if (clip, start) not in videos:
            videos = {(clip, start): _frames(minidit, files[clip], start, crop).to(device)}
        video = minidit.fit(videos[clip, start], crop.height, crop.width)
        wanted = [
            (index, source)
            for index, source in enumerate(sources)
            if (source.clip, source.start, source.sigma) == (clip, start, sigma)
        ]
        layers, grid = minidit.qkv(model, video, sigma, sorted({s.layer for _, s in wanted}))
        if not tensors:
            shape = 1, grid[0] * grid[1] * grid[2], len(sources), HEAD_DIM
            tensors = [torch.empty(shape, dtype=torch.bfloat16, device=device) for _ in range(3)]
        for index, source in wanted:
            for target, tensor in zip(tensors, layers[source.layer], strict=True):
                target[0, :, index] = tensor[:, source.head]
    about = {
        "model": "minidit",
        "weights_sha256": _sha256(weights),
        "clips_sha256": {name: _sha256(path) for name, path in files.items()},
        "grid": list(grid),
        "heads": [asdict(source) for source in sources],
    }
    return Captured(Inputs(*tensors), about)


def _frames(minidit: Any, path: Path, start: int, crop: Crop) -> torch.Tensor:
    video = minidit.load_video(str(path), start, crop.frames)
    # There and back again, the turning point once.
    longest = 2 * len(video) - 1
    if longest < crop.frames:
        raise ValueError(
            f"{path}: {len(video)} frames from frame {start} on; expected at least "
            f"{crop.frames // 2 + 1}; take the clip of Debian's package opencv-doc"
        )
    backwards = video[:-1].flip(0)
    return torch.cat([video, backwards[: crop.frames - len(video)]])


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
