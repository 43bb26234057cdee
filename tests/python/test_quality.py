# SPDX-License-Identifier: BSD-3-Clause
"""The study of the command quality on tiny random models: measures, names, clips, refusals."""

import json
import math
import shutil
import struct
import subprocess
import sys
import zlib

import numpy
import pytest

torch = pytest.importorskip("torch")

from open_vc_attn import _safetensors, cli  # noqa: E402
from open_vc_attn.quality import clip, command, e4m3, images, model, numerics, product  # noqa: E402
from open_vc_attn.quality.study import Settings, Study, relative_error, rms  # noqa: E402

COUNT, HEIGHT, WIDTH = 8, 16, 24
SMALL = ["--count", str(COUNT), "--size", str(HEIGHT), str(WIDTH), "--steps", "2"]
RANDOM = ["--model", "random", *SMALL]


@pytest.fixture(scope="module")
def study():
    frames = clip.synthetic_clip(0, COUNT, HEIGHT, WIDTH)
    return Study(model.random_model("cpu"), frames, Settings(steps=3, seeds=2))


def test_exact_numerics_have_no_error(study):
    (outcome,) = study.measure(["exact exact exact"])
    assert outcome.velocity_errors == [0, 0, 0] and outcome.latent_errors == [0, 0, 0]
    assert outcome.head_errors == [[0, 0], [0, 0]] and outcome.layer_errors == [0, 0]
    assert outcome.psnr_of_seeds == [math.inf] * 2 and outcome.ssim == pytest.approx(1, abs=1e-6)
    assert torch.equal(outcome.frame, study.exact_frame)


def test_coarser_numerics_have_more_error(study):
    names = ["bf16", "int8hadblk frac128 c1m32", "n0 exp head", "library"]
    fine, good, coarse, library = study.measure(names)
    for found in (fine, good, coarse, library):
        assert 0 < found.velocity_error < 20 and 20 < found.psnr < 120 and 0.5 < found.ssim < 1
        assert found.milliseconds_per_call > 0
    assert fine.velocity_error < good.velocity_error < coarse.velocity_error
    assert fine.psnr > good.psnr > coarse.psnr
    assert max(map(max, good.head_errors)) < min(map(max, coarse.head_errors))


def test_velocity_error_is_that_of_the_whole_output(study):
    """The definition, spelled out again."""
    attend = numerics.parse("n0 exact exact").attention
    exact = numerics.parse("exact").attention
    clean = study._model.encode(clip.synthetic_clip(0, COUNT, HEIGHT, WIDTH)[None])
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    errors = []
    with torch.no_grad():
        for sigma in (0.9, 0.6, 0.3):
            z = (1 - sigma) * clean + sigma * noise
            a, b = (study._model(z, sigma, lambda _, *x, f=f: f(*x)) for f in (attend, exact))
            errors.append(100 * float((a.double() - b.double()).norm() / b.double().norm()))
    (outcome,) = study.measure(["n0 exact exact"])
    assert outcome.velocity_errors == pytest.approx(errors, rel=1e-5)
    assert outcome.velocity_error == pytest.approx(math.sqrt(sum(e * e for e in errors) / 3))


def test_captured_heads(study):
    q, k, v = study.capture(0.6)
    tokens = COUNT // 4 * HEIGHT // 8 * WIDTH // 8
    assert q.shape == k.shape == v.shape == (1, tokens, 4, 128) and q.dtype == torch.bfloat16


def test_every_layer_of_the_random_model_matters():
    z = torch.randn(1, 2, 2, 3, 64)
    network = model.random_model("cpu")
    exact = numerics.parse("exact").attention
    with torch.no_grad():
        whole = network(z, 0.5, lambda _, *x: exact(*x))
        for layer in range(network.layers):
            part = network(z, 0.5, lambda i, *x, n=layer: exact(*x) * (i != n))
            assert relative_error(part, whole) > 1


def test_latents_of_pixels_and_back():
    frames = clip.synthetic_clip(0, COUNT, HEIGHT, WIDTH)[None]
    network = model.random_model("cpu")
    latents = network.encode(frames)
    assert latents.shape == (1, 2, 2, 3, 64)
    # The first three channels are the mean colour of a token; what they say survives.
    tokens = network.decode(latents)[0].reshape(2, 4, 2, 8, 3, 8, 3).mean((1, 3, 5))
    expected = frames[0].reshape(2, 4, 2, 8, 3, 8, 3).mean((1, 3, 5))
    torch.testing.assert_close(tokens, expected, atol=0.05, rtol=0)


def test_psnr_and_ssim():
    zero = torch.zeros(2, 16, 16, 3)
    assert images.psnr(zero, zero) == math.inf
    assert images.psnr(zero + 0.2, zero) == pytest.approx(20, abs=1e-5)  # 10 log10(4 / 0.04)
    assert images.psnr(zero + 2, zero) == pytest.approx(0, abs=1e-5)
    assert images.ssim(zero, zero) == 1
    # Flat pictures: (2 a b + c1) / (a^2 + b^2 + c1) with c1 = (0.01 * 2)^2.
    expected = (2 * 0.5 * 0.3 + 4e-4) / (0.25 + 0.09 + 4e-4)
    assert images.ssim(zero + 0.5, zero + 0.3) == pytest.approx(expected, abs=1e-4)
    # A checkerboard has no mean under the window, so that its negative has the likeness -1.
    row, column = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    board = (1 - 2.0 * ((row + column) % 2))[None, :, :, None].expand(2, 16, 16, 3)
    assert images.ssim(board, board) == pytest.approx(1, abs=1e-6)
    assert images.ssim(board, -board) < -0.99
    noise = torch.randn(2, 32, 32, 3, generator=torch.Generator().manual_seed(0))
    assert 0.3 < images.ssim(noise + 0.5 * noise.flip(0), noise) < 0.95


def test_ssim_of_a_window_by_hand():
    generator = numpy.random.default_rng(0)
    a, b = generator.uniform(-1, 1, (2, 11, 11))
    offsets = numpy.arange(11) - 5
    window = numpy.exp(-(offsets**2) / (2 * 1.5**2))
    window = numpy.outer(window, window) / window.sum() ** 2
    mean_a, mean_b = (window * a).sum(), (window * b).sum()
    var_a, var_b = (window * a * a).sum() - mean_a**2, (window * b * b).sum() - mean_b**2
    both = (window * a * b).sum() - mean_a * mean_b
    c1, c2 = 0.02**2, 0.06**2
    expected = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    expected /= (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
    frames = [torch.tensor(x)[None, :, :, None].expand(1, 11, 11, 3) for x in (a, b)]
    assert images.ssim(*frames) == pytest.approx(expected, abs=1e-5)


def test_png_can_be_read_again():
    image = torch.arange(5 * 7 * 3, dtype=torch.uint8).reshape(5, 7, 3)
    data = images.png(image)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert checksum == zlib.crc32(kind + content)
        chunks[kind], at = content, at + 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (7, 5, 8, 2, 0, 0, 0)
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), numpy.uint8).reshape(5, 22)
    assert (rows[:, 0] == 0).all() and (rows[:, 1:].reshape(5, 7, 3) == image.numpy()).all()


def test_root_mean_square():
    assert rms([3, 4]) == pytest.approx(math.sqrt(12.5)) and rms([2]) == 2


def test_what_tensor_cores_take_unchanged():
    x = torch.randn(50, 9, generator=torch.Generator().manual_seed(0))
    assert not product.holds_in_tf32(x)
    codes = torch.arange(-127.0, 128)
    for few in (x.bfloat16().float(), codes, e4m3.round_to_e4m3(x), e4m3.round_to_e4m3(x) / 64):
        assert product.holds_in_tf32(few) and product.holds_in_tf32(few[::2])
    assert product.holds_in_tf32(torch.tensor([1 + 2.0**-10]))
    assert not product.holds_in_tf32(torch.tensor([1.0, 1 + 2.0**-11]))
    assert not product.fits_tensor_cores(codes)  # there are none here
    before = torch.backends.cuda.matmul.allow_tf32
    with product.tf32(not before):
        assert torch.backends.cuda.matmul.allow_tf32 != before
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_names_of_numerics():
    for name in (*numerics.TABLE, *numerics.DEFAULT, *numerics.SIMULATED):
        assert numerics.parse(name).name == name
    q, k, v = (torch.randn(1, 40, 2, 128).bfloat16() for _ in range(3))
    plain = numerics.parse("library").attention(q, k, v)
    steps = numerics.parse("library:max_extra_steps=4,score_error_target=0").attention(q, k, v)
    assert not torch.equal(plain, steps)


@pytest.mark.parametrize(
    "name, text",
    [
        ("sage", "'sage'; expected library[:option=value,...], bf16, exact, reference, fa3-like"),
        ("n1 exact", "'n1 exact'; expected library"),
        ("n9 exact exact", "'n9 exact exact': 'n9' for Q and K; expected exact, blk, int8"),
        ("library:", "'' in 'library:'; expected option=value"),
        ("library:steps=3", "'steps=3' in 'library:steps=3'; expected option=value"),
        ("library:max_extra_steps=3", "numerics.max_extra_steps: '3'; expected 0, 1, 2 or 4"),
        ("library:smooth_keys=yes", "numerics.smooth_keys: 'yes'; expected True or False"),
        ("library:score_error_target=x", "numerics.score_error_target: 'x'; expected"),
        ("library:max_extra_steps=1,max_extra_steps=2", "each option once"),
    ],
)
def test_refused_numerics(name, text, capsys):
    assert cli.run(["quality", *RANDOM, "--numerics", name]) == 2
    found = capsys.readouterr()
    assert text in found.err and found.err.startswith("open-vc-attn: ") and found.out == ""


def save_weights(folder, change=lambda tensors: tensors):
    state = model.random_model("cpu", depth=1, width=128).state_dict()
    folder.mkdir(exist_ok=True)
    _safetensors.save(folder / model.WEIGHTS_FILE, change(dict(state)))
    return folder


def test_weights_from_a_folder(tmp_path, capsys):
    folder = save_weights(tmp_path)
    network = model.load_model(folder, "cpu")
    assert (network.layers, network.heads) == (1, 1)
    expected = model.random_model("cpu", depth=1, width=128)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor)
    words = ["quality", "--model", str(folder), *SMALL, "--numerics", "n0 exact exact"]
    assert cli.run(words) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("n0 exact exact  ")


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda t: {}, "inp.weight: missing; expected [heads x 128, 64]"),
        (lambda t: t | {"inp.weight": torch.zeros(100, 64)}, "inp.weight: shape [100, 64]"),
        (
            lambda t: t | {"blocks.0.qkv.weight": torch.zeros(9)},
            "blocks.0.qkv.weight: shape [9]; expected shape [384, 128]",
        ),
        (
            lambda t: {name: x for name, x in t.items() if name != "out.bias"},
            "out.bias: missing; expected shape [64]",
        ),
        (lambda t: t | {"more": torch.zeros(1)}, "more: shape [1]; expected no such tensor"),
    ],
)
def test_refused_weights(tmp_path, capsys, change, text):
    folder = save_weights(tmp_path, change)
    assert cli.run(["quality", "--model", str(folder), *SMALL]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, text",
    [
        (["--model", "nowhere"], "minidit_weights.safetensors: no such file"),
        ([], "--model: not given"),
        (["--model", "random", "--count", "6"], "count: 6; expected a multiple of 4"),
        (["--model", "random", "--size", "12", "16"], "height: 12; expected a multiple of 8"),
        (["--model", "random", "--start", "-1"], "start: -1; expected 0 or more"),
        (["--model", "random", "--frames", "x.avi"], "x.avi: no such file"),
        (["--model", "random", "--frames", "x*.jpg"], "x*.jpg: no such images"),
        (["--model", "random", "--device", "tpu"], "--device: 'tpu'"),
        (["--model", "random", "--device", "meta"], "--device: 'meta'; expected cpu or cuda"),
        (["--model", "random", "--html", "no/x.html"], "--html: no/x.html; expected a file in"),
        (["--model", "random", "--json", "."], "--json: .; expected a file in"),
        (["--model", "random", "--json", "x", "--html", "x"], "--html: x is also --json"),
        (["--model", "random", "--steps", "0"], "--steps: 0; expected 1 or more"),
        (["--model", "random", "--seeds", "x"], "--seeds: invalid whole number value: 'x'"),
        (["--model", "random", "--dtype", "int8"], "--dtype: invalid choice: 'int8'"),
        (["--model", "random", "--unknown"], "--unknown"),
    ],
)
def test_refused_arguments(words, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["quality", *words]) == 2
    found = capsys.readouterr()
    assert text in found.err and found.err.startswith("open-vc-attn: ") and found.out == ""
    assert list(tmp_path.iterdir()) == []


def test_outputs_never_replace_inputs(tmp_path, capsys):
    folder = save_weights(tmp_path / "model")
    weights = folder / model.WEIGHTS_FILE
    before = weights.read_bytes()
    assert cli.run(["quality", "--model", str(folder), *SMALL, "--json", str(weights)]) == 2
    assert "is also --model" in capsys.readouterr().err and weights.read_bytes() == before


def save_frames(path, count=COUNT, dtype=numpy.uint8):
    frames = numpy.random.default_rng(0).integers(0, 256, (count, 20, 30, 3)).astype(dtype)
    numpy.save(path, frames)
    return frames


def test_frames_of_an_array(tmp_path):
    frames = save_frames(tmp_path / "x.npy", 12)
    found = clip.load_clip(str(tmp_path / "x.npy"), 3, 8, 16, 24)
    expected = frames[3:11, 2:18, 3:27].astype(numpy.float32) / 127.5 - 1
    numpy.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert clip.load_clip(str(tmp_path / "x.npy"), 0, 4, 40, 64).shape == (4, 40, 64, 3)


@pytest.mark.parametrize(
    "dtype, count, text",
    [(numpy.float32, 8, "float32 [8, 20, 30, 3]; expected uint8"), (numpy.uint8, 5, "5 frames")],
)
def test_refused_arrays(tmp_path, dtype, count, text):
    save_frames(tmp_path / "x.npy", count, dtype)
    with pytest.raises(ValueError) as refused:
        clip.load_clip(str(tmp_path / "x.npy"), 0, 8, 16, 24)
    assert text in str(refused.value)


def test_images_and_videos_through_whatever_decodes_them(tmp_path):
    frames = save_frames(tmp_path / "x.npy", 4)
    for i, frame in enumerate(frames):
        (tmp_path / f"f{i}.png").write_bytes(images.png(torch.tensor(frame)))
    pattern = str(tmp_path / "f*.png")
    try:
        found = clip.load_clip(pattern, 0, 4, 16, 24)
    except ValueError as error:
        assert "nothing here decodes it; expected one of Pillow, torchvision" in str(error)
        pytest.skip("no decoder of images")
    assert torch.equal(found, clip.load_clip(str(tmp_path / "x.npy"), 0, 4, 16, 24))


def test_frames_of_a_video(tmp_path):
    frames = save_frames(tmp_path / "x.npy", 12)
    if not shutil.which("ffmpeg"):
        pytest.skip("no ffmpeg, which makes the video")
    path = tmp_path / "x.avi"
    command = (
        "ffmpeg -v error -f rawvideo -pix_fmt rgb24 -s 30x20 -r 10 -i - -c:v ffv1 -pix_fmt bgr0"
    )
    subprocess.run([*command.split(), path], input=frames.tobytes(), check=True)
    for start, count in ((0, 12), (5, 4), (8, 4)):
        found = clip.load_clip(str(path), start, count, 16, 24)
        expected = clip.load_clip(str(tmp_path / "x.npy"), start, count, 16, 24)
        assert torch.equal(found, expected)
    with pytest.raises(ValueError, match="2 frames from frame 10 on; expected 4"):
        clip.load_clip(str(path), 10, 4, 16, 24)
    (tmp_path / "broken.avi").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"broken\.avi: "):
        clip.load_clip(str(tmp_path / "broken.avi"), 0, 4, 16, 24)


def test_nothing_decodes(tmp_path, monkeypatch):
    (tmp_path / "x.avi").write_bytes(b"")
    monkeypatch.setenv("PATH", "")
    for module in ("cv2", "PIL", "torchvision.io", "torchvision"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match="nothing here decodes it; expected one of OpenCV"):
        clip.load_clip(str(tmp_path / "x.avi"), 0, 4, 16, 24)


def test_synthetic_clips_move_and_repeat():
    first = clip.synthetic_clip(0, 8, 32, 40)
    assert torch.equal(first[4:], clip.synthetic_clip(4, 4, 32, 40))
    assert first.shape == (8, 32, 40, 3) and first.abs().max() <= 1 and first.std() > 0.2
    assert (first[0] - first[7]).abs().mean() > 0.01


NUMERICS_KEYS = {
    "name": str,
    "description": str,
    "velocity_error_percent": float,
    "velocity_error_percent_of_noise_levels": list,
    "psnr_db": (float, type(None)),
    "psnr_db_of_seeds": list,
    "ssim": float,
    "ssim_of_seeds": list,
    "latent_error_percent_of_steps": list,
    "layer_error_percent": list,
    "head_error_percent": list,
    "milliseconds_per_call": float,
    "seconds": float,
}


def test_json(tmp_path, capsys):
    path = tmp_path / "x.json"
    words = ["quality", *RANDOM, "--seeds", "2", "--json", str(path)]
    assert cli.run([*words, "--numerics", "exact", "library", "--numerics", "exact"]) == 0
    data = json.loads(path.read_text())
    assert (data["tokens"], data["grid"], data["steps"], data["seeds"]) == (12, [2, 2, 3], 2, 2)
    assert (data["model"], data["layers"], data["heads"]) == ("random", 2, 2)
    assert data["clip"] == {
        "source": "synthetic",
        "start": 0,
        "frames": COUNT,
        "height": HEIGHT,
        "width": WIDTH,
    }
    assert [entry["name"] for entry in data["numerics"]] == ["exact", "library"]
    for entry in data["numerics"]:
        assert {key: type(value) for key, value in entry.items()}.keys() == NUMERICS_KEYS.keys()
        assert all(isinstance(entry[key], kind) for key, kind in NUMERICS_KEYS.items())
        assert len(entry["psnr_db_of_seeds"]) == len(entry["ssim_of_seeds"]) == 2
        assert len(entry["latent_error_percent_of_steps"]) == 2
        assert [len(layer) for layer in entry["head_error_percent"]] == [2, 2]
    exact, library = data["numerics"]
    assert exact["psnr_db"] is None and library["psnr_db"] > 20
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 4 and table[2].split()[5] == "same"
    assert float(table[3].split()[4]) == pytest.approx(library["velocity_error_percent"], abs=1e-3)


def test_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from open_vc_attn import cli; "
        "raise SystemExit(cli.run(['quality', '--model', 'random']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "needs torch" in result.stderr and "pip install torch" in result.stderr


def test_list_and_help(capsys):
    assert cli.run(["quality", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in (*numerics.TABLE, "sage2-like"))
    assert cli.run(["quality", "--help"]) == 0
    assert "--numerics" in capsys.readouterr().out


def test_help_of_the_program_names_the_command(capfd):
    if not cli._PROGRAM.is_file():
        pytest.skip("no program was built")
    assert cli.run(["--help"]) == 0
    assert f"quality {' ' * 19} {command.SUMMARY}" in capfd.readouterr().out


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_measures_what_the_cpu_measures():
    names = ["n0 exp head", "int8 rne pc", "n1 exact exact", "exact anchor128 c1m7"]
    frames = clip.synthetic_clip(0, COUNT, 64, 64)
    found = {}
    for device in ("cpu", "cuda"):
        study = Study(model.random_model(device), frames, Settings(steps=2))
        found[device] = [outcome.velocity_error for outcome in study.measure([*names, "exact"])]
    assert found["cuda"][-1] == 0
    assert found["cuda"] == pytest.approx(found["cpu"], rel=0.1)
    study = Study(model.random_model("cuda"), frames, Settings(steps=2, dtype="bfloat16"))
    library, exact = study.measure(["library", "exact"])
    assert 0 < library.velocity_error < 20 and exact.velocity_error == 0
