# SPDX-License-Identifier: BSD-3-Clause
"""Outputs of the program that are also something else that it reads or writes."""

import os

import numpy
import pytest
from program_runner import complaint_of, find_program, run

from open_vc_attn import _safetensors, cli

EXECUTABLE = ["--rows", 4, "--no-options", "--no-backend"]


def write_capture(path):
    x = numpy.random.default_rng(0).standard_normal((8, 1, 128)).astype(numpy.float32)
    _safetensors.save(path, {"q": x, "k": x, "v": x})
    return path


def same_path(folder, path):
    return path


def through_parent(folder, path):
    (folder / "sub").mkdir()
    return f"{folder}/sub/../{path.name}"


def through_dot(folder, path):
    return f"{folder}/./{path.name}"


def symbolic_link(folder, path):
    (folder / "link").symlink_to(path)
    return folder / "link"


def relative_link(folder, path):
    (folder / "link").symlink_to(path.name)
    return folder / "link"


def chain_of_links(folder, path):
    (folder / "first").symlink_to(path)
    (folder / "second").symlink_to("first")
    return folder / "second"


def linked_folder(folder, path):
    (folder / "elsewhere").symlink_to(folder)
    return folder / "elsewhere" / path.name


def hard_link(folder, path):
    os.link(path, folder / "hard")
    return folder / "hard"


WAYS = [
    same_path,
    through_parent,
    through_dot,
    symbolic_link,
    relative_link,
    chain_of_links,
    linked_folder,
    hard_link,
]
OUTPUTS = [
    ("run", "--output", "--lse"),
    ("run", "-o", "--no-causal"),
    ("error", "--json", "--no-options"),
    ("error", "--html", "--no-options"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command, option, other", OUTPUTS)
def test_the_input_is_no_output(tmp_path, way, command, option, other):
    path = write_capture(tmp_path / "in.safetensors")
    before = path.read_bytes(), sorted(os.listdir(tmp_path))
    spelled = way(tmp_path, path)
    listed = sorted(os.listdir(tmp_path))
    message = complaint_of(2, command, "-i", path, option, spelled, other)
    assert f"{spelled}: found the same file as --input {path}; expected a file" in message
    assert "Give another path." in message
    assert path.read_bytes() == before[0] and sorted(os.listdir(tmp_path)) == listed


@pytest.mark.parametrize("position", [0, 1, 2])
def test_each_of_three_inputs(tmp_path, position):
    paths = [tmp_path / f"{name}.npy" for name in "qkv"]
    for path in paths:
        numpy.save(path, numpy.zeros((4, 2, 128), numpy.float32))
    before = paths[position].read_bytes()
    message = complaint_of(2, "run", "-i", *paths, "-o", paths[position])
    assert f"same file as --input {paths[position]}" in message
    assert paths[position].read_bytes() == before


@pytest.mark.parametrize("way", WAYS)
def test_two_outputs_are_two_files(tmp_path, way):
    source = write_capture(tmp_path / "in.safetensors")
    target = tmp_path / "out"
    target.write_text("old")
    spelled = way(tmp_path, target)
    message = complaint_of(2, "error", "-i", source, "--json", target, "--html", spelled)
    assert f"--html {spelled}: found the same file as --json {target}" in message
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    "way", [same_path, through_parent, through_dot, symbolic_link, relative_link, linked_folder]
)
def test_two_outputs_that_do_not_exist_yet(tmp_path, way):
    source = write_capture(tmp_path / "in.safetensors")
    target = tmp_path / "out"
    spelled = way(tmp_path, target)
    complaint_of(2, "error", "-i", source, "--json", target, "--html", spelled)
    assert not target.exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--family", "gaussian", "--tokens", "8", "-o"],
        ["error", "--family", "gaussian", "--tokens", "8", "--json"],
        ["bench", "--tokens", "8", "--repeats", "1", "--json"],
    ],
)
def test_a_standard_stream_is_no_output(tmp_path, stream, arguments):
    import subprocess

    target = tmp_path / "out"
    with open(target, "w") as file:
        other = {"stdout": "stderr", "stderr": "stdout"}[stream]
        result = subprocess.run(
            [find_program(), *arguments, target],
            **{stream: file, other: subprocess.PIPE},
            text=True,
            timeout=300,
        )
    assert result.returncode == 2
    text = result.stderr if stream == "stdout" else target.read_text()
    assert f"found the same file as standard {'output' if stream == 'stdout' else 'error'}" in text


def test_files_of_their_own_are_written(tmp_path):
    source = write_capture(tmp_path / "in.safetensors")
    (tmp_path / "dangling").symlink_to("target")
    result = run(
        *("error", "-i", source, *EXECUTABLE),
        *("--json", tmp_path / "dangling", "--html", tmp_path / "page"),
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "target").is_file() and (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "page").is_file()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", ["-o", "--output"])
def test_a_file_of_torch_is_no_output(tmp_path, torch, way, option, monkeypatch, capfd):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    loaded = []
    monkeypatch.setattr(torch, "load", lambda *a, **k: loaded.append(a))
    path = tmp_path / "in.pt"
    path.write_bytes(b"not read")
    assert cli.run(["run", "-i", str(path), option, str(way(tmp_path, path))]) == 2
    assert "found the same file as --input" in capfd.readouterr().err
    assert path.read_bytes() == b"not read" and loaded == []


def test_arguments_are_checked_before_files_of_torch_are_read(tmp_path, torch, monkeypatch, capfd):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    loaded = []
    monkeypatch.setattr(torch, "load", lambda *a, **k: loaded.append(a))
    path = tmp_path / "in.pt"
    path.write_bytes(b"not read")
    for arguments, status in (
        (["--layout", "xyz"], 2),
        (["--nope"], 2),
        (["-o", "/no/such/folder/out"], 1),
    ):
        assert cli.run(["run", "-i", str(path), *arguments]) == status
    assert loaded == []
    assert capfd.readouterr().out == ""


def test_a_recording_overwrites_nothing(tmp_path, torch):
    """The one Python function that writes takes a folder, in which no file may exist."""
    from open_vc_attn import capture

    q = torch.zeros(1, 1, 4, 128)
    kept = write_capture(tmp_path / "kept.safetensors")
    before = kept.read_bytes()
    for make in (os.link, os.symlink):
        folder = tmp_path / make.__name__
        folder.mkdir()
        recording = capture(out=folder)
        make(kept, folder / "step000_layer000.safetensors")
        with pytest.raises(FileExistsError):
            recording.record(q, q, q)
        assert kept.read_bytes() == before
