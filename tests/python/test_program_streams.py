# SPDX-License-Identifier: BSD-3-Clause
"""Whatever happens to its streams, arguments and environment: the program ends by itself."""

import os
import resource
import subprocess

import numpy
import pytest
from program_runner import find_program

from open_vc_attn import _safetensors

STREAMS = ("closed", "full", "gone", "kept")
COMMANDS = {
    "info": ["info"],
    "info as JSON": ["info", "--json"],
    "check": ["check", "--smoke", "--json"],
    "run": ["run", "--family", "gaussian", "--tokens", "20"],
    "error": ["error", "--family", "gaussian", "--tokens", "20", "--no-options", "--no-backend"],
    "bench": ["bench", "--tokens", "20", "--repeats", "1"],
    "help": ["--help"],
    "help of a command": ["run", "--help"],
    "version": ["--version"],
}
FAILING = {
    "nothing": [],
    "unknown command": ["bogus"],
    "unknown option": ["run", "--bogus"],
    "missing file": ["run", "-i", "/no/such/file"],
    "unwritable output": ["run", "--family", "gaussian", "-o", "/no/such/folder/x"],
    "output twice": ["error", "--family", "gaussian", "--json", "x", "--html", "x"],
}


def status_of(arguments, out="kept", err="kept", stdin="</dev/null", folder=None):
    """The exit status with standard output and standard error as the names say."""
    read_end, write_end = os.pipe()
    os.close(read_end)  # nobody reads the pipe
    closing = "".join(
        f" {number}>&-" for number, stream in ((1, out), (2, err)) if stream == "closed"
    )
    with open("/dev/full", "w") as full:
        files = {"closed": None, "full": full, "gone": write_end, "kept": subprocess.DEVNULL}
        try:
            return subprocess.run(
                ["sh", "-c", f'exec "$0" "$@" {stdin}{closing}', find_program(), *arguments],
                stdout=files[out],
                stderr=files[err],
                timeout=300,
                cwd=folder,
            ).returncode
        finally:
            os.close(write_end)


@pytest.mark.parametrize("stream", ["closed", "full", "gone"])
@pytest.mark.parametrize("name", COMMANDS)
def test_lost_output_is_a_failure(name, stream, tmp_path):
    assert status_of(COMMANDS[name], out=stream, folder=tmp_path) == 1
    assert status_of(COMMANDS[name], out=stream, err=stream, folder=tmp_path) == 1


@pytest.mark.parametrize("stream", ["closed", "full", "gone"])
@pytest.mark.parametrize("name", COMMANDS)
def test_silent_commands_need_no_standard_error(name, stream, tmp_path):
    if name == "check":
        pytest.skip("as the others, and slow")
    assert status_of(COMMANDS[name], err=stream, folder=tmp_path) == 0
    assert status_of(COMMANDS[name], stdin="<&-", folder=tmp_path) == 0


@pytest.mark.parametrize("out", STREAMS)
@pytest.mark.parametrize("err", STREAMS)
@pytest.mark.parametrize("name", FAILING)
def test_failures_keep_their_status(name, out, err, tmp_path):
    status = status_of(FAILING[name], out=out, err=err, folder=tmp_path)
    assert status == (1 if name in ("missing file", "unwritable output") else 2)
    assert os.listdir(tmp_path) == []


@pytest.fixture
def masked(tmp_path):
    """A capture that the program warns of."""
    x = numpy.zeros((8, 1, 128), numpy.float32)
    path = tmp_path / "masked.safetensors"
    _safetensors.save(path, {"q": x, "k": x, "v": x}, {"masked": "true"})
    return path


@pytest.mark.parametrize("stream, status", [("closed", 1), ("full", 1), ("gone", 1), ("kept", 0)])
@pytest.mark.parametrize(
    "command", [["run", "-o", "out"], ["error", "--rows", "4", "--no-options", "--json", "out"]]
)
def test_a_lost_warning_is_a_failure(masked, tmp_path, stream, status, command):
    folder = tmp_path / "work"
    folder.mkdir()
    assert status_of([*command, "-i", masked], err=stream, folder=folder) == status
    assert (folder / "out").is_file()


@pytest.mark.parametrize("out", ["closed", "kept"])
@pytest.mark.parametrize("err", ["closed", "kept"])
@pytest.mark.parametrize("stdin", ["<&-", "</dev/null"])
def test_files_do_not_become_standard_streams(masked, tmp_path, out, err, stdin):
    """A file that is opened gets the lowest free descriptor: what is printed must not go there."""
    before = masked.read_bytes()
    folder = tmp_path / "work"
    folder.mkdir()
    status_of(["run", "-i", masked, "-o", "x"], out=out, err=err, stdin=stdin, folder=folder)
    assert masked.read_bytes() == before
    tensors, metadata = _safetensors.load(folder / "x")  # raises if there is anything else in it
    assert list(tensors) == ["out"] and "mask" in metadata["note"]


def test_beyond_the_limit_of_file_sizes(tmp_path):
    """The system would end the process with SIGXFSZ."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    result = subprocess.run(
        [find_program(), "run", "--family", "gaussian", "--tokens", "99", "-o", tmp_path / "x"],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 1 and "cannot write it" in result.stderr
    assert os.listdir(tmp_path) == []


HUGE = "9" * 100_000
ARGUMENTS = {
    "empty": [""],
    "empty option": ["run", ""],
    "empty values": ["run", "--family", "", "--type", "", "--layout", "", "--tokens", ""],
    "only dashes": ["--"],
    "huge command": [HUGE],
    "huge number": ["run", "--family", "gaussian", "--tokens", HUGE],
    "huge seed": ["run", "--family", "gaussian", "--seed", HUGE],
    "huge path": ["run", "-i", "x" * 100_000],
    "huge output": ["run", "--family", "gaussian", "--tokens", "4", "-o", "x" * 100_000],
    "deep path": ["run", "-i", "a/" * 50_000],
    "many values": ["run", "-i", *["x"] * 5000],
    "not UTF-8": [b"\xff\xfe"],
    "not UTF-8 as a value": ["run", "--family", b"\xff"],
    "not UTF-8 as a file": ["run", "-i", b"\xff.safetensors"],
    "not UTF-8 as an output": ["run", "--family", "gaussian", "-o", b"no/such/\xff"],
    "control characters": ["run", "--family", "\x1b[2J\r\n"],
    "format strings": ["{}%s%n{0}", "%s"],
    "more memory than there is": ["run", "--family", "gaussian", "--tokens", "1000000000"],
    "numbers that overflow": [
        *("run", "--family", "gaussian", "--tokens", "1000000000"),
        *("--heads", "1000000000", "--batch", "1000000000"),
    ],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_strange_arguments(name, tmp_path):
    result = subprocess.run(
        [find_program(), *ARGUMENTS[name]], capture_output=True, timeout=300, cwd=tmp_path
    )
    assert result.returncode in (1, 2), result.stderr
    assert result.stderr.startswith(b"open-vc-attn: ")
    assert b"terminate" not in result.stderr
    assert os.listdir(tmp_path) == []


ENVIRONMENTS = {
    "none": {},
    "odd sizes of the terminal": {"COLUMNS": "-1", "LINES": "x", "TERM": "\x1b"},
    "odd locale": {"LC_ALL": "xx_YY.\xff", "LANG": "\n"},
    "no folder for temporary files": {"TMPDIR": "/no/such/folder", "HOME": "/no/such/folder"},
    "empty": {"HOME": "", "TMPDIR": "", "COLUMNS": "", "PATH": "", "LC_ALL": ""},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("command", ["info", "run", "help"])
def test_strange_environments(name, command, tmp_path):
    result = subprocess.run(
        [find_program(), *COMMANDS[command]],
        env=ENVIRONMENTS[name],
        capture_output=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout and os.listdir(tmp_path) == []


def test_no_arguments_at_all():
    """Not even a name of the program."""
    result = subprocess.run([""], executable=find_program(), capture_output=True, timeout=300)
    assert result.returncode == 2 and b"info" in result.stderr
