# SPDX-License-Identifier: BSD-3-Clause
"""Input clips: a video, images, an array, or one that is made here."""

from __future__ import annotations

import glob
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from .model import TOKEN_FRAMES, TOKEN_HEIGHT, TOKEN_WIDTH

SYNTHETIC = "synthetic"
ARRAY_SUFFIX = ".npy"
VIDEO_SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".webm")
MAX_BYTE = 255
_OBJECTS = 6
_SEED = 7
_SOFT_EDGE = 8.0  # pixels beyond a disc's radius that still show it


def load_clip(source: str, start: int, count: int, height: int, width: int) -> torch.Tensor:
    """[count, height, width, 3] in [-1, 1]: the centre of each frame, enlarged if it is smaller.

    `source`: a video file, a pattern of image files, a .npy file of uint8 [N, H, W, 3], or
    "synthetic".

    Raises:
        ValueError: there are fewer frames, sizes do not fit tokens, or nothing can decode it.
    """
    for name, value, unit in (
        ("count", count, TOKEN_FRAMES),
        ("height", height, TOKEN_HEIGHT),
        ("width", width, TOKEN_WIDTH),
    ):
        if value <= 0 or value % unit:
            raise ValueError(f"{name}: {value}; expected a multiple of {unit}, the size of a token")
    if start < 0:
        raise ValueError(f"start: {start}; expected 0 or more")
    if source == SYNTHETIC:
        return synthetic_clip(start, count, height, width)
    frames = _read(source, start, count)
    if len(frames) < count:
        raise ValueError(
            f"{source}: {len(frames)} frames from frame {start} on; expected {count}. Use fewer "
            "(--count), or start earlier (--start)."
        )
    return fit(frames, height, width)


def fit(frames: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """uint8 [N, H, W, 3] to [-1, 1]: enlarged to cover the size if smaller, then its centre."""
    x = frames.permute(0, 3, 1, 2).float() / (MAX_BYTE / 2) - 1
    zoom = max(height / x.shape[2], width / x.shape[3])
    if zoom > 1:
        size = max(height, round(x.shape[2] * zoom)), max(width, round(x.shape[3] * zoom))
        x = functional.interpolate(x, size=size, mode="bilinear", align_corners=False)
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    return x[:, :, top : top + height, left : left + width].permute(0, 2, 3, 1)


def synthetic_clip(start: int, count: int, height: int, width: int) -> torch.Tensor:
    """Textured discs that move over a textured ground, [count, height, width, 3] in [-1, 1]."""
    generator = torch.Generator().manual_seed(_SEED)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    scale = min(height, width)
    y, x = torch.meshgrid(torch.arange(height) / scale, torch.arange(width) / scale, indexing="ij")
    aspect = torch.tensor([height / scale, width / scale])
    place, speed = uniform(_OBJECTS, 2) * aspect, (uniform(_OBJECTS, 2) - 0.5) * 0.03
    radius, wave = 0.08 + 0.14 * uniform(_OBJECTS), 10 + 40 * uniform(_OBJECTS, 2)
    colour = 2 * uniform(_OBJECTS, 3) - 1

    def texture(u: torch.Tensor, v: torch.Tensor, wave: torch.Tensor) -> torch.Tensor:
        return (torch.sin(wave[0] * u + 3 * torch.sin(wave[1] * v)) + torch.sin(wave[1] * v)) / 4

    frames = []
    ground = torch.tensor([17.0, 23.0])
    for time in range(start, start + count):
        drift = 0.004 * time
        shade = (0.4 * y + 0.25 * torch.cos(3 * x + drift)) - 0.3
        frame = (shade + texture(y, x + drift, ground))[..., None] * torch.tensor([0.8, 1.0, 0.9])
        for i in range(_OBJECTS):
            centre = _bounce(place[i] + speed[i] * time, aspect)
            box = _box(centre * scale, radius[i] * scale, height, width)
            u, v = y[box] - centre[0], x[box] - centre[1]
            inside = torch.sigmoid((radius[i] - torch.hypot(u, v)) * scale)[..., None]
            skin = colour[i] + texture(u, v, wave[i])[..., None]
            frame[box] += inside * (skin - frame[box])
        frames.append(frame.clamp(-1, 1))
    return torch.stack(frames)


def _box(
    centre: torch.Tensor, radius: torch.Tensor, height: int, width: int
) -> tuple[slice, slice]:
    """The pixels that a disc with a soft edge touches."""
    reach = float(radius) + _SOFT_EDGE
    (top, left), (bottom, right) = (centre - reach).tolist(), (centre + reach).tolist()
    rows = slice(max(0, int(top)), max(0, min(height, int(bottom) + 1)))
    return rows, slice(max(0, int(left)), max(0, min(width, int(right) + 1)))


def _bounce(place: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """There and back again between 0 and size."""
    turn = torch.remainder(place, 2 * size)
    return torch.minimum(turn, 2 * size - turn)


def _read(source: str, start: int, count: int) -> torch.Tensor:
    """Up to `count` frames, uint8 [N, H, W, 3]."""
    suffix = Path(source).suffix.lower()
    if suffix == ARRAY_SUFFIX:
        return _read_array(source)[start : start + count]
    if suffix in VIDEO_SUFFIXES:
        _require_file(source)
        return _first_decoder(source, (_opencv_video, _ffmpeg))(source, start, count)
    files = sorted(glob.glob(source))[start : start + count]
    if not files:
        raise ValueError(
            f"{source}: no such images from number {start} on; expected a video "
            f"({', '.join(VIDEO_SUFFIXES)}), a pattern of image files, a {ARRAY_SUFFIX} file or "
            f"'{SYNTHETIC}'"
        )
    decode = _first_decoder(source, (_pillow, _torchvision, _opencv_video, _ffmpeg))
    images = [decode(file, 0, 1) for file in files]
    if any(image.shape != images[0].shape for image in images):
        raise ValueError(f"{source}: images of several sizes; expected frames of one clip")
    return torch.cat(images)


def _require_file(source: str) -> None:
    if not Path(source).is_file():
        raise ValueError(f"{source}: no such file; expected a video, or '{SYNTHETIC}'")


def _read_array(source: str) -> torch.Tensor:
    import numpy

    _require_file(source)
    try:
        array = numpy.load(source, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{source}: not a .npy file of numbers ({error})") from None
    if array.dtype != numpy.uint8 or array.ndim != 4 or array.shape[3] != 3:
        raise ValueError(
            f"{source}: {array.dtype} {list(array.shape)}; expected uint8 [frames, height, "
            "width, 3]"
        )
    return torch.from_numpy(array)


_Decoder = Callable[[str, int, int], torch.Tensor]


class _Unavailable(Exception):
    """The decoder is not installed."""


def _first_decoder(source: str, decoders: tuple[_Decoder, ...]) -> _Decoder:
    def decode(path: str, start: int, count: int) -> torch.Tensor:
        missing = []
        for decoder in decoders:
            try:
                return decoder(path, start, count)
            except _Unavailable as error:
                missing.append(str(error))
        raise ValueError(
            f"{source}: nothing here decodes it; expected one of {', '.join(missing)}. Install "
            f"one, or give the frames as uint8 [N, H, W, 3] in a {ARRAY_SUFFIX} file."
        )

    return decode


def _opencv_video(path: str, start: int, count: int) -> torch.Tensor:
    try:
        import cv2
    except ImportError:
        raise _Unavailable("OpenCV (opencv-python-headless)") from None
    video, frames = cv2.VideoCapture(path), []
    for index in range(start + count):
        found, frame = video.read()
        if not found:
            break
        if index >= start:
            frames.append(torch.from_numpy(frame[..., ::-1].copy()))
    return torch.stack(frames) if frames else torch.empty(0, 1, 1, 3, dtype=torch.uint8)


def _pillow(path: str, start: int, count: int) -> torch.Tensor:
    try:
        from PIL import Image
    except ImportError:
        raise _Unavailable("Pillow") from None
    with Image.open(path) as image:
        width, height = image.size
        data = bytearray(image.convert("RGB").tobytes())
    return torch.frombuffer(data, dtype=torch.uint8).view(1, height, width, 3)


def _torchvision(path: str, start: int, count: int) -> torch.Tensor:
    try:
        from torchvision.io import ImageReadMode, decode_image
    except ImportError:
        raise _Unavailable("torchvision") from None
    try:
        return decode_image(path, ImageReadMode.RGB).permute(1, 2, 0)[None]
    except RuntimeError as error:
        raise ValueError(f"{path}: torchvision cannot read it: {error}") from None


def _ffmpeg(path: str, start: int, count: int) -> torch.Tensor:
    if not (shutil.which("ffmpeg") and shutil.which("ffprobe")):
        raise _Unavailable("ffmpeg")
    size = _output_of(
        path,
        *("ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries"),
        *("stream=width,height", "-of", "csv=p=0:s=x", path),
    )
    width, height = (int(word) for word in size.decode().split()[0].split("x")[:2])
    # Times as if there were no other frames: nothing is doubled or dropped to keep a rate.
    frames = f"select=gte(n\\,{start})*lt(n\\,{start + count}),setpts=N/FRAME_RATE/TB"
    raw = _output_of(
        path,
        *("ffmpeg", "-v", "error", "-nostdin", "-i", path, "-vf", frames),
        *("-frames:v", str(count), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"),
    )
    if not raw:
        return torch.empty(0, height, width, 3, dtype=torch.uint8)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, height, width, 3)


def _output_of(path: str, *command: str) -> bytes:
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode != 0:
        reason = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"{path}: {command[0]} cannot read it: {' '.join(reason)}")
    return result.stdout
