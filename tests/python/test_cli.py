# SPDX-License-Identifier: BSD-3-Clause
"""The Python side of the command line: finding and running the program, and torch's files."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from open_vc_attn import _safetensors, cli

ECHO = '#!/bin/sh\nfor argument in "$@"; do echo "$argument"; done\n'


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Installs a shell script in the place of the program."""

    def install(script):
        path = tmp_path / "program"
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setattr(cli, "_PROGRAM", path)

    return install


def test_arguments_pass_unchanged(program, capfd):
    program(ECHO)
    arguments = ["run", "--out", "a b", "", "*", "--name=x.pt", "q.pth", "-"]
    assert cli.run(arguments) == 0
    assert capfd.readouterr().out.splitlines() == arguments


@pytest.mark.parametrize(
    "entry, command",
    [
        (cli.main, []),
        (cli.main_check, ["check"]),
        (cli.main_info, ["info"]),
        (cli.main_bench, ["bench"]),
    ],
)
def test_entry_points(program, capfd, monkeypatch, entry, command):
    program(ECHO)
    monkeypatch.setattr(sys, "argv", ["name", "--smoke"])
    with pytest.raises(SystemExit) as end:
        entry()
    assert end.value.code == 0
    assert capfd.readouterr().out.split() == [*command, "--smoke"]


@pytest.mark.parametrize("script, status", [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_exit_status(program, script, status):
    program(f"#!/bin/sh\n{script}\n")
    assert cli.run([]) == status


def test_streams_pass_through(program):
    program("#!/bin/sh\ncat; echo problem >&2\n")
    code = (
        f"from pathlib import Path; from open_vc_attn import cli; "
        f"cli._PROGRAM = Path({str(cli._PROGRAM)!r}); raise SystemExit(cli.run([]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], input="hello", capture_output=True, text=True
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello", "problem\n")


@pytest.mark.parametrize(
    "sent, to_group", [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)]
)
def test_signals_reach_the_program(program, tmp_path, sent, to_group):
    """The wrapper waits for the program, which cleans up, and reports its status."""
    program(
        f"#!/bin/sh\ntrap 'sleep 0.3; echo cleaned; exit 7' {sent.name[3:]}\n"
        f"touch {tmp_path}/started\nwhile :; do sleep 0.05; done\n"
    )
    code = (
        f"from pathlib import Path; from open_vc_attn import cli; "
        f"cli._PROGRAM = Path({str(cli._PROGRAM)!r}); raise SystemExit(cli.run([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, sent) if to_group else process.send_signal(sent)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("cleaned\n", 7)


def test_missing_program(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "_PROGRAM", tmp_path / "none")
    assert cli.run(["info"]) == 1
    captured = capsys.readouterr()
    assert "built without the command line program" in captured.err and captured.out == ""


PRINT_INPUT = (
    '#!/bin/sh\nfor a in "$@"; do case $a in *.safetensors) '
    'a=${a#--input=}; cat "${a#-i}" > %s;; esac; done\n'
)


@pytest.mark.parametrize("form", ["dict", "triple", "tensor"])
@pytest.mark.parametrize("argument", ["--input {}", "--input={}", "-i {}", "-i{}"])
def test_files_of_torch_are_converted(program, tmp_path, torch, form, argument):
    q = torch.randn(4, 2, 128).bfloat16()
    source, seen = tmp_path / "caps.pt", tmp_path / "seen"
    named = {"q": q, "k": q + 1, "causal": True, "softmax_scale": 0.5}
    content = {"dict": named, "triple": (q, q + 1, q), "tensor": q}[form]
    torch.save(content, source)
    program(PRINT_INPUT % seen)
    assert cli.run(["run", *argument.format(source).split()]) == 0
    tensors, metadata = _safetensors.load(seen)
    expected = {"dict": "qk", "triple": "qkv", "tensor": ["caps"]}[form]
    assert list(tensors) == list(expected)
    assert torch.equal(tensors[expected[0]].torch(), q)
    plain = {"causal": "true", "softmax_scale": "0.5"}
    assert metadata == (plain if form == "dict" else {})


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"tensor": x}])
def test_three_files_of_one_tensor_become_one(program, tmp_path, torch, capfd, wrap):
    paths = [str(tmp_path / f"{name}.pt") for name in "abc"]
    for n, path in enumerate(paths):
        torch.save(wrap(torch.full((2,), n)), path)
    seen = tmp_path / "seen"
    program(ECHO + PRINT_INPUT % seen)
    assert cli.run(["error", "-i", *paths, "--causal"]) == 0
    command, option, _, *rest = capfd.readouterr().out.splitlines()
    assert [command, option, *rest] == [
        *("error", "-i", "--causal"),
        *(f"--converted-from={path}" for path in paths),
    ]
    tensors, _ = _safetensors.load(seen)
    assert [(name, int(t.torch()[0])) for name, t in tensors.items()] == [
        ("q", 0),
        ("k", 1),
        ("v", 2),
    ]


def test_files_of_several_captures_stay_apart(program, tmp_path, torch, capfd):
    paths = [str(tmp_path / f"{n}.pt") for n in range(3)]
    for path in paths:
        torch.save({"q": torch.zeros(1), "k": torch.zeros(1)}, path)
    program(ECHO)
    assert cli.run(["error", "-i", *paths]) == 0
    names = [os.path.basename(line) for line in capfd.readouterr().out.splitlines()]
    converted = ["0.safetensors", "1.safetensors", "2.safetensors"]
    assert names == ["error", "-i", *converted, "0.pt", "1.pt", "2.pt"]


def test_temporary_files_vanish(program, tmp_path, torch, capfd):
    torch.save(torch.zeros(1), tmp_path / "x.pt")
    program(ECHO)
    cli.run(["run", "-i", str(tmp_path / "x.pt")])
    path = capfd.readouterr().out.splitlines()[2]
    assert path.endswith("/x.safetensors") and not os.path.exists(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-o", "{}"],
        ["run", "--output={}"],
        ["error", "-i", "x.npy", "--json", "{}"],
        ["error", "--html", "{}"],
        ["bench", "-i", "{}"],
    ],
)
def test_only_inputs_are_converted(program, tmp_path, torch, capfd, arguments):
    torch.save(torch.zeros(1), tmp_path / "x.pt")
    program(ECHO)
    arguments = [a.format(tmp_path / "x.pt") for a in arguments]
    assert cli.run(arguments) == 0
    assert capfd.readouterr().out.splitlines() == arguments


class Evil:
    def __reduce__(self):
        return os.system, ("echo executed",)


def test_paths_with_an_equals_sign(program, tmp_path, torch):
    folder, seen = tmp_path / "step=10", tmp_path / "seen"
    folder.mkdir()
    torch.save({"q": torch.ones(2)}, folder / "x.pt")
    program(PRINT_INPUT % seen)
    assert cli.run(["run", "-i", str(folder / "x.pt")]) == 0
    assert list(_safetensors.load(seen)[0]) == ["q"]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda torch: torch.zeros(3, dtype=torch.complex64), "complex64"),
        (lambda torch: torch.eye(3).to_sparse(), "torch.sparse_coo"),
        (lambda torch: torch.zeros(3, device="meta"), "meta"),
    ],
)
@pytest.mark.parametrize("form", ["dict", "tensor", "three files"])
def test_tensors_that_no_file_can_hold(program, tmp_path, torch, capfd, make, words, form):
    path, tensor = str(tmp_path / "x.pt"), make(torch)
    torch.save({"q": tensor, "k": torch.zeros(3)} if form == "dict" else tensor, path)
    program(ECHO)
    assert cli.run(["run", "-i", *[path] * (3 if form == "three files" else 1)]) == 2
    captured = capfd.readouterr()
    name = "x" if form == "tensor" else "q"
    assert captured.err.startswith(f"open-vc-attn: {path}: tensor '{name}' cannot be converted: ")
    assert words in captured.err and "Way out: " in captured.err and captured.out == ""


def test_no_space_for_the_conversion(program, tmp_path, torch, capfd, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    torch.save(torch.zeros(1), tmp_path / "x.pt")
    program(ECHO)
    monkeypatch.setattr(_safetensors, "save", refuse)
    assert cli.run(["run", "-i", str(tmp_path / "x.pt")]) == 1
    captured = capfd.readouterr()
    assert "No space left on device. Way out: set TMPDIR" in captured.err and captured.out == ""


@pytest.mark.parametrize(
    "content, words",
    [
        (Evil(), "torch cannot load it safely"),
        ({"a": 1}, "holds no tensors"),
        (3, "expected a tensor, a triple"),
        ([1, 2], "expected a tensor, a triple"),
    ],
)
def test_unusable_files(program, tmp_path, torch, capfd, content, words):
    path = tmp_path / "x.pt"
    torch.save(content, path)
    program(ECHO)
    assert cli.run(["run", "-i", str(path)]) == 2
    captured = capfd.readouterr()
    assert words in captured.err and str(path) in captured.err
    assert captured.out == ""


def test_without_torch(program, tmp_path, monkeypatch, capsys):
    (tmp_path / "x.pt").write_bytes(b"")
    program(ECHO)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.run(["run", "-i", str(tmp_path / "x.pt")]) == 2
    assert "needs torch, which is not installed" in capsys.readouterr().err
