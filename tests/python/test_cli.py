# SPDX-License-Identifier: BSD-3-Clause
"""The Python side of the command line: finding and running the program, and torch's files."""

import errno
import os
import runpy
import signal
import subprocess
import sys
import time

import pytest
from program_runner import find_program

from open_vc_attn import _safetensors, cli

# The wrapper asks the program whether arguments are right before it converts files.
CHECK = '#!/bin/sh\ncase "$*" in *--only-check) exit 0;; esac\n'
ECHO = CHECK + 'for argument in "$@"; do echo "$argument"; done\n'


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
    assert (
        "found no program; expected it beside the extension" in captured.err and captured.out == ""
    )


PRINT_INPUT = (
    CHECK + 'for a in "$@"; do case $a in *.safetensors|*/fd/*) '
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


ODD_TENSORS = {
    "complex128": lambda torch: torch.zeros(3, dtype=torch.complex128),
    "sparse_coo": lambda torch: torch.eye(3).to_sparse(),
    "sparse_csr": lambda torch: torch.eye(3).to_sparse_csr(),
    "meta": lambda torch: torch.zeros(3, device="meta"),
    "quint8": lambda torch: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.quint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD_TENSORS)
@pytest.mark.parametrize("form", ["tensor", "three files"])
def test_tensors_that_no_file_can_hold(program, tmp_path, torch, capfd, kind, form):
    path, tensor = str(tmp_path / "x.pt"), ODD_TENSORS[kind](torch)
    torch.save(tensor, path)
    program(ECHO)
    assert cli.run(["run", "-i", *[path] * (3 if form == "three files" else 1)]) == 2
    captured = capfd.readouterr()
    if "cannot load" not in captured.err:  # the kinds that torch itself does not load safely
        name = "x" if form == "tensor" else "q"
        assert captured.err.startswith(
            f"open-vc-attn: {path}: found tensor '{name}' that cannot be converted ("
        )
        assert "torch.save(x.to_dense().to(torch.bfloat16), path)." in captured.err
    assert captured.out == ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["complex128", "sparse_coo", "sparse_csr", "meta"])
def test_odd_tensors_that_nobody_asks_for(tmp_path, torch, capfd, kind, monkeypatch):
    """They are refused by their type where somebody asks, and do not refuse the file."""
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    path, x = str(tmp_path / "x.pt"), torch.zeros(4, 2, 128)
    torch.save({"q": x, "k": x, "v": x, "odd": ODD_TENSORS[kind](torch)}, path)
    assert cli.run(["run", "-i", path]) == 0
    capfd.readouterr()
    assert cli.run(["run", "-i", path, "--q-name", "odd"]) == 1
    message = capfd.readouterr().err
    assert message.startswith(f"open-vc-attn: {path}: found tensor 'odd' of type '")
    assert kind in message and "Convert it before it is saved" in message


def test_no_space_for_the_conversion(program, tmp_path, torch, capfd, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    torch.save(torch.zeros(1), tmp_path / "x.pt")
    program(ECHO)
    monkeypatch.setattr(_safetensors, "save", refuse)
    assert cli.run(["run", "-i", str(tmp_path / "x.pt")]) == 1
    captured = capfd.readouterr()
    assert "(No space left on device); expected space for 4 bytes. Set TMPDIR" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    "content, words",
    [
        (Evil(), "that torch cannot load safely"),
        ({"a": 1}, "found no tensors; expected q, k and v"),
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
    assert "found a file of torch, which is not installed" in capsys.readouterr().err


def scalars(torch):
    import numpy

    return {
        "Python float": 0.5,
        "Python int": 1,
        "text": "0.5",
        "0-d float32": torch.tensor(0.5),
        "0-d float64": torch.tensor(0.5, dtype=torch.float64),
        "0-d float16": torch.tensor(0.5, dtype=torch.float16),
        "0-d bfloat16": torch.tensor(0.5, dtype=torch.bfloat16),
        "0-d int64": torch.tensor(1),
        "0-d int32": torch.tensor(1, dtype=torch.int32),
        "1-d": torch.tensor([0.5]),
        "numpy float64": numpy.float64(0.5),
        "numpy float32": numpy.float32(0.5),
        "numpy int64": numpy.int64(1),
        "numpy 0-d array": numpy.array(0.5),
    }


def flags(torch):
    import numpy

    return {
        "Python bool": True,
        "Python int": 1,
        "text": "true",
        "0-d bool": torch.tensor(True),
        "0-d uint8": torch.tensor(1, dtype=torch.uint8),
        "0-d int64": torch.tensor(1),
        "0-d float32": torch.tensor(1.0),
        "numpy bool": numpy.bool_(True),
        "numpy int64": numpy.int64(1),
        "numpy 0-d array": numpy.array(True),
    }


def output_of_torch_file(tmp_path, torch, content, *arguments):
    """What the program computes of q, k, v and these values."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(9, 1, 128, generator=generator) for _ in range(3))
    path, target = tmp_path / "x.pt", tmp_path / "out.safetensors"
    torch.save({"q": q, "k": k, "v": v, **content}, path)
    status = cli.run(["run", "-i", str(path), "-o", str(target), *arguments])
    return _safetensors.load(target)[0]["out"].torch() if status == 0 else status


@pytest.mark.parametrize("prefix", ["", "block."])
def test_scales_of_every_kind_are_honoured(tmp_path, torch, monkeypatch, capfd, prefix):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    plain = output_of_torch_file(tmp_path, torch, {})
    expected = {
        value: output_of_torch_file(tmp_path, torch, {}, "--softmax-scale", str(value))
        for value in (0.5, 1)
    }
    assert not torch.equal(plain, expected[0.5])
    assert not torch.equal(expected[1], expected[0.5])
    for name, value in scalars(torch).items():
        found = output_of_torch_file(tmp_path, torch, {prefix + "softmax_scale": value})
        if prefix:  # marks another call of the same file
            assert torch.equal(found, plain), name
        else:
            assert torch.equal(found, expected[1 if "int" in name else 0.5]), name


def test_flags_of_every_kind_are_honoured(tmp_path, torch, monkeypatch, capfd):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    expected = output_of_torch_file(tmp_path, torch, {}, "--causal")
    plain = output_of_torch_file(tmp_path, torch, {}, "--no-causal")
    assert not torch.equal(plain, expected)
    for name, value in flags(torch).items():
        assert torch.equal(output_of_torch_file(tmp_path, torch, {"causal": value}), expected), name
        overridden = output_of_torch_file(tmp_path, torch, {"causal": value}, "--no-causal")
        assert torch.equal(overridden, plain), name


REFUSED_VALUES = [
    ({"softmax_scale": [0.5]}, "'softmax_scale' of type list; expected tensors, numbers and text"),
    ({"softmax_scale": 1j}, "of type complex"),
    ({"options": {"causal": True}}, "found 'options' of type dict"),
    ({"causal": (True,)}, "found 'causal' of type tuple"),
    ({1: "a", "1": "b"}, "found two keys that read '1'"),
    ({"text": "\udcff"}, "is not valid Unicode"),
    ({"softmax_scale": "fast"}, "softmax_scale = 'fast'; expected a number from 2^-126"),
    ({"softmax_scale": 0}, "softmax_scale = '0'; expected a number from 2^-126"),
    ({"softmax_scale": -0.5}, "softmax_scale = '-0.5'; expected a number from 2^-126"),
    ({"softmax_scale": float("nan")}, "softmax_scale = 'nan'; expected a number from 2^-126"),
    ({"softmax_scale": 1e-60}, "expected a number from 2^-126"),
    ({"softmax_scale": True}, "softmax_scale = 'true'; expected a number from 2^-126"),
    ({"causal": "maybe"}, "causal = 'maybe'; expected true or false"),
    ({"causal": 2}, "causal = '2'; expected true or false"),
    ({"causal": 0.5}, "causal = '0.5'; expected true or false"),
    ({"layout": "DSH"}, "layout = 'DSH'; expected SHD, BSHD, HSD or BHSD"),
    ({"is_causal": True}, "the parameter 'is_causal' of attention; expected the name causal"),
    ({"scale": 0.5}, "the parameter 'scale' of attention; expected the name softmax_scale"),
    ({"dropout_p": 0.5}, "the parameter 'dropout_p' of attention; expected softmax_scale"),
    ({"window_size": 5}, "This library does not offer it: leave it out of the file."),
]


@pytest.mark.parametrize("content, words", REFUSED_VALUES)
def test_values_that_are_not_honoured_are_refused(
    tmp_path, torch, monkeypatch, capfd, content, words
):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    assert output_of_torch_file(tmp_path, torch, content) in (1, 2)
    captured = capfd.readouterr()
    assert captured.err.startswith(f"open-vc-attn: {tmp_path}/x.pt: found ")
    assert words in captured.err and captured.out == ""
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("key", ["attn_mask", "mask", "softmax_scale", "causal"])
def test_tensors_that_say_something_about_the_call(tmp_path, torch, monkeypatch, capfd, key):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    assert output_of_torch_file(tmp_path, torch, {key: torch.zeros(9, 9)}) == 1
    assert key in capfd.readouterr().err


def test_free_text_is_shown(tmp_path, torch, monkeypatch, capfd):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    content = {"prompt": "a cat", "model": "wan", "step": 3, "nothing": None}
    output_of_torch_file(tmp_path, torch, content)
    assert "Input: model wan, step 3, prompt a cat\n" in capfd.readouterr().out


def test_conversion_without_a_folder_for_temporary_files(
    program, tmp_path, torch, monkeypatch, capfd
):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    source, seen = tmp_path / "x.pt", tmp_path / "seen"
    torch.save({"q": torch.ones(2)}, source)
    program(PRINT_INPUT % seen)
    monkeypatch.setattr(cli._torch_files.tempfile, "TemporaryDirectory", refuse)
    assert cli.run(["run", "-i", str(source)]) == 0
    assert _safetensors.load(seen)[0]["q"].torch().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("arguments", [["info"], ["run", "-i", "x.safetensors"], ["check"], []])
def test_nothing_is_written_without_a_conversion(program, arguments, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    program(ECHO)
    monkeypatch.setattr(cli._torch_files.tempfile, "TemporaryDirectory", refuse)
    assert cli.run(arguments) == 0


def test_the_package_is_a_program():
    result = subprocess.run(
        [sys.executable, "-m", "open_vc_attn", "--version"], capture_output=True, text=True
    )
    if not cli._PROGRAM.is_file():
        assert (result.returncode, result.stdout) == (1, "") and "found no program" in result.stderr
    else:
        import open_vc_attn

        assert (result.returncode, result.stdout) == (0, open_vc_attn.__version__ + "\n")


def test_the_program_lies_beside_the_extension(tmp_path, monkeypatch):
    """An editable installation leaves the Python files in the source tree."""
    from open_vc_attn import _openvc

    monkeypatch.setattr(_openvc, "__file__", str(tmp_path / "_openvc.so"))
    paths = runpy.run_module("open_vc_attn._paths")
    assert paths["PROGRAM"] == tmp_path / "bin" / "open-vc-attn"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("stream", ["closed", "full"])
def test_messages_of_the_wrapper_may_be_lost(tmp_path, stream, unbuffered):
    code = (
        "from pathlib import Path; from open_vc_attn import cli; "
        f"cli._PROGRAM = Path({str(tmp_path)!r}) / 'none'; raise SystemExit(cli.run([]))"
    )
    redirection = {"closed": "2>&-", "full": "2>/dev/full"}[stream]
    result = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert (result.returncode, result.stdout) == (1, "")
