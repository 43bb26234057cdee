# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of the program that nothing would use are refused; files that it replaces stay private."""

import os
import stat

import numpy
import pytest
from program_runner import complaint_of, output_of

from open_vc_attn import _safetensors, cli

X = numpy.random.default_rng(0).standard_normal((4, 1, 128)).astype(numpy.float32)


def write(path, *names, **metadata):
    _safetensors.save(path, {name: X for name in names}, metadata)
    return path


@pytest.fixture
def whole(tmp_path):
    return write(tmp_path / "whole.safetensors", "q", "k", "v")


@pytest.mark.parametrize("command", ["run", "error"])
@pytest.mark.parametrize("names", ["qkv", "q", "v", "kx"])
def test_a_tensor_in_two_files_is_refused(whole, tmp_path, names, command):
    other = write(tmp_path / "other.safetensors", *names)
    for files in ((whole, other), (other, whole)):
        message = complaint_of(1, command, "-i", *files)
        assert f"{files[0]}, {files[1]}: found tensor" in message and "in both" in message
    message = complaint_of(1, command, "-i", whole, whole)
    assert f"{whole}, {whole}" in message


def test_a_tensor_in_two_files_of_torch_is_refused(tmp_path, torch, capfd):
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in paths:
        torch.save({name: torch.from_numpy(X) for name in "qkv"}, path)
    assert cli.run(["run", "-i", *map(str, paths)]) == 1
    assert f"{paths[0]}, {paths[1]}: found tensor 'q' in both" in capfd.readouterr().err


def test_a_file_of_no_use_is_refused(whole, tmp_path):
    other = write(tmp_path / "other.safetensors", "x", model="m")
    assert "other.safetensors: found none of the tensors" in complaint_of(
        1, "run", "-i", whole, other
    )
    scale = write(tmp_path / "scale.safetensors", "x", softmax_scale="0.5")
    output_of("run", "-i", whole, scale)


FILE_OPTIONS = {
    "--tensors": "a.",
    "--q-name": "x",
    "--k-name": "x",
    "--v-name": "x",
    "--layout": "hsd",
    "--uint16-as-bfloat16": None,
}


@pytest.mark.parametrize("command", ["run", "error"])
@pytest.mark.parametrize("option", FILE_OPTIONS)
def test_options_of_files_are_refused_for_families(option, command):
    value = FILE_OPTIONS[option]
    words = [option] if value is None else [option, value]
    message = complaint_of(2, command, "--family", "gaussian", "--tokens", 4, *words)
    assert f"{option} describes files" in message


@pytest.mark.parametrize("option", ["--tensors", "--q-name", "--k-name", "--v-name"])
def test_names_are_refused_for_three_arrays(tmp_path, option):
    for name in "abc":
        numpy.save(tmp_path / f"{name}.npy", X)
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    assert "have no names" in complaint_of(1, "run", "-i", *paths, option, "x")


@pytest.mark.parametrize("command", ["run", "error"])
def test_uint16_as_bfloat16_without_such_files(whole, tmp_path, command):
    for name in "abc":
        numpy.save(tmp_path / f"{name}.npy", X)
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    for files in ([whole], paths):
        message = complaint_of(1, command, "-i", *files, "--uint16-as-bfloat16")
        assert "--uint16-as-bfloat16: found no .npy file of uint16" in message
        assert files[0].name in message


def test_uint16_as_bfloat16_for_files_of_torch(tmp_path, torch, capfd):
    path = tmp_path / "x.pt"
    torch.save({name: torch.from_numpy(X).bfloat16() for name in "qkv"}, path)
    assert cli.run(["run", "-i", str(path), "--uint16-as-bfloat16"]) == 1
    assert f"found no .npy file of uint16 among {path}" in capfd.readouterr().err


SCALES = [
    *("0", "-0", "-1", "1e-50", "1e-46", "1e-40", "1e38", "1e50", "1e400", "1e-400"),
    *("nan", "-nan", "inf", "-inf", "0x1p-3", "0x0", "1,5", "1_0", " 1", "1 ", "one", ""),
]


@pytest.mark.parametrize("command", ["run", "error", "bench"])
@pytest.mark.parametrize("scale", SCALES)
def test_scales_that_attention_does_not_take(command, scale):
    made = ["--tokens", "4"] if command == "bench" else ["--family", "gaussian", "--tokens", "4"]
    message = complaint_of(2, command, *made, f"--softmax-scale={scale}")
    assert "softmax-scale" in message


@pytest.mark.parametrize("scale", ["1.2e-38", "2.1e37", "0.1", "1e-1", ".5", "1"])
def test_scales_that_attention_takes(scale):
    output_of("run", "--family", "gaussian", "--tokens", 4, f"--softmax-scale={scale}")


@pytest.mark.parametrize("scale", ["0", "1e-50", "1e-40", "1e38", "1e50", "nan", "0x1p-3"])
def test_scales_of_files(tmp_path, scale):
    path = write(tmp_path / "x.safetensors", "q", "k", "v", softmax_scale=scale)
    assert "expected a number from 2^-126" in complaint_of(1, "run", "-i", path)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def by_run(path):
    output_of("run", "--family", "gaussian", "--tokens", 4, "-o", path)


def by_bench(path):
    output_of("bench", "--tokens", 4, "--repeats", 1, "--json", path)


def by_error(option):
    def write_report(path):
        made = ["--family", "gaussian", "--tokens", 4, "--rows", 2, "--no-options"]
        output_of("error", *made, option, path)

    return write_report


def by_package(path):
    _safetensors.save(path, {"x": X})


WRITERS = {
    "run --output": by_run,
    "bench --json": by_bench,
    "error --json": by_error("--json"),
    "error --html": by_error("--html"),
    "package": by_package,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_permissions_of_a_replaced_file_stay(tmp_path, writer):
    for mode in (0o600, 0o640, 0o444, 0o666):
        path = tmp_path / f"{mode:o}"
        path.write_text("old")
        path.chmod(mode)
        WRITERS[writer](path)
        assert path.read_bytes() != b"old"
        assert mode_of(path) == mode


@pytest.mark.parametrize("writer", WRITERS)
def test_permissions_of_a_new_file_follow_the_mask(tmp_path, writer):
    before = os.umask(0)
    try:
        for mask in (0o077, 0o022):
            os.umask(mask)
            path = tmp_path / f"{mask:o}"
            WRITERS[writer](path)
            assert mode_of(path) == 0o666 & ~mask
    finally:
        os.umask(before)


def test_a_link_stays_one(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("target")
    by_package(link)
    assert link.is_symlink() and target.read_bytes() != b"old" and mode_of(target) == 0o600


def test_what_is_no_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match="expected a file"):
            by_package(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_quality_refuses_outputs_that_are_no_files(tmp_path, option, torch, capsys):
    os.mkfifo(tmp_path / "pipe")
    made = ["quality", "--model", str(tmp_path), "--frames", str(tmp_path / "frames")]
    assert cli.run([*made, option, str(tmp_path / "pipe")]) != 0
    assert f"{option}: {tmp_path / 'pipe'}; expected a file" in capsys.readouterr().err
