# SPDX-License-Identifier: BSD-3-Clause
"""The remedies that messages of the program name, carried out."""

import numpy
import pytest
from program_runner import complaint_of, find_program, output_of

from open_vc_attn import _safetensors, cli

SHAPE = (4, 2, 128)


def values():
    return numpy.random.default_rng(0).standard_normal(SHAPE).astype(numpy.float32)


def npy_files(folder, array):
    paths = [folder / f"{name}.npy" for name in "qkv"]
    for path in paths:
        numpy.save(path, array)
    return paths


STRUCTURED = numpy.zeros(SHAPE, [("field", "f4"), ("other", "f4")])

# What was saved, the remedy that the message names, and how it reads as Python.
ARRAYS = {
    "big-endian": (
        lambda x: x.astype(">f4"),
        "numpy.save(path, array.astype(array.dtype.newbyteorder('<')))",
    ),
    "big-endian half": (
        lambda x: x.astype(">f2"),
        "numpy.save(path, array.astype(array.dtype.newbyteorder('<')))",
    ),
    "Fortran order": (numpy.asfortranarray, "numpy.save(path, numpy.ascontiguousarray(array))"),
    "structured": (lambda x: STRUCTURED, "numpy.save(path, array['field'])"),
    "float64": (
        lambda x: x.astype("f8"),
        "numpy.save(path, array.astype(numpy.float32))",
    ),
    "int64": (lambda x: x.astype("i8"), "numpy.save(path, array.astype(numpy.float32))"),
    "uint16": (lambda x: x.astype("u2"), "numpy.save(path, array.astype(numpy.float32))"),
    "objects": (lambda x: x.astype(object), "numpy.save(path, array.astype(numpy.float32))"),
    "long double": (
        lambda x: x.astype(numpy.longdouble),
        "numpy.save(path, array.astype(numpy.float32))",
    ),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_remedies_for_arrays(tmp_path, kind):
    make, remedy = ARRAYS[kind]
    array = make(values())
    paths = npy_files(tmp_path, array)
    assert remedy in complaint_of(1, "run", "-i", *paths)
    for path in paths:
        exec(remedy, {"numpy": numpy, "array": array, "path": path})
    output_of("run", "-i", *paths)


def test_remedy_for_8_bit_floats(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = values().astype(ml_dtypes.float8_e4m3fn)
    paths = npy_files(tmp_path, array)
    message = complaint_of(1, "run", "-i", *paths)
    assert "Convert it before it is saved: numpy.save(path, array.astype(numpy.float32))" in message
    output_of("run", "-i", *npy_files(tmp_path, array.astype(numpy.float32)))


@pytest.mark.parametrize("kind", ["text", "bytes", "dates", "void"])
def test_arrays_that_no_conversion_helps(tmp_path, kind):
    array = {
        "text": numpy.full(SHAPE, "x"),
        "bytes": numpy.full(SHAPE, b"x"),
        "dates": numpy.zeros(SHAPE, "M8[s]"),
        "void": numpy.zeros(SHAPE, "V8"),
    }[kind]
    message = complaint_of(1, "run", "-i", *npy_files(tmp_path, array))
    assert "save an array of numbers" in message and "astype" not in message
    output_of("run", "-i", *npy_files(tmp_path, values()))


def test_bfloat16_arrays_need_no_remedy(tmp_path):
    """NumPy brings them back as V2, whose .astype(numpy.float32) would be garbage."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = values().astype(ml_dtypes.bfloat16)
    output_of("run", "-i", *npy_files(tmp_path, array), "-o", tmp_path / "a")
    bits = npy_files(tmp_path, array.view(numpy.uint16))
    message = complaint_of(1, "run", "-i", *bits)
    assert "If its numbers are the bits of bfloat16, say so with --uint16-as-bfloat16" in message
    output_of("run", "-i", *bits, "--uint16-as-bfloat16", "-o", tmp_path / "b")
    first, second = (_safetensors.load(tmp_path / name)[0]["out"] for name in "ab")
    assert first == second and first.dtype == "BF16"


def test_remedy_for_archives(tmp_path):
    x = values()
    numpy.savez(tmp_path / "x.npz", q=x, k=x, v=x)
    message = complaint_of(1, "run", "-i", tmp_path / "x.npz")
    assert "Save each of its arrays as an .npy file with numpy.save" in message
    assert "all of them as one safetensors file with safetensors.numpy.save_file" in message
    archive = numpy.load(tmp_path / "x.npz")
    for name in "qkv":
        numpy.save(tmp_path / f"{name}.npy", archive[name])
    output_of("run", "-i", *(tmp_path / f"{name}.npy" for name in "qkv"))
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(dict(archive), tmp_path / "all.safetensors")
    output_of("run", "-i", tmp_path / "all.safetensors")


@pytest.mark.parametrize("name", ["x.pt", "x.bin"])
def test_remedies_for_files_of_torch(tmp_path, torch, monkeypatch, capfd, name):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    x = torch.from_numpy(values())
    path = tmp_path / name
    torch.save({"q": x, "k": x.clone(), "v": x.clone()}, path)
    message = complaint_of(1, "run", "-i", path)  # the program itself
    assert "`open-vc-attn` of the Python package converts files whose names end in .pt" in message
    assert "torch.load(.., weights_only=True)" in message
    assert "safetensors.torch.save_file" in message
    renamed = path.rename(tmp_path / "renamed.pt")
    assert cli.run(["run", "-i", str(renamed)]) == 0
    safetensors = pytest.importorskip("safetensors.torch")
    content = torch.load(renamed, weights_only=True)
    safetensors.save_file(content, tmp_path / "saved.safetensors")
    output_of("run", "-i", tmp_path / "saved.safetensors")


def test_remedy_for_a_pickle_that_runs_code(tmp_path, torch, monkeypatch, capfd):
    import datetime

    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    path = tmp_path / "x.pt"
    q = k = v = torch.from_numpy(values())
    torch.save({"q": q, "when": datetime.timedelta(1)}, path)
    assert cli.run(["run", "-i", str(path)]) == 2
    remedy = "torch.save({'q': q, 'k': k, 'v': v}, path)"
    assert f"Save these alone: {remedy}." in capfd.readouterr().err
    exec(remedy, {"torch": torch, "q": q, "k": k, "v": v, "path": path})
    assert cli.run(["run", "-i", str(path)]) == 0


@pytest.mark.parametrize("kind", ["float64", "int32", "bool", "float8_e4m3fn"])
def test_remedy_for_types_in_safetensors(tmp_path, torch, kind):
    x = torch.from_numpy(values()).to(getattr(torch, kind))
    path = tmp_path / "x.safetensors"
    _safetensors.save(path, {"q": x, "k": x, "v": x})
    message = complaint_of(1, "run", "-i", path)
    assert "Convert it before it is saved: x.to(torch.bfloat16), or name another" in message
    converted = x.to(torch.bfloat16)
    _safetensors.save(path, {"q": converted, "k": converted, "v": converted, "old": x})
    output_of("run", "-i", path)


def test_remedies_for_names_and_layouts(tmp_path):
    x, path = values(), tmp_path / "x.safetensors"
    _safetensors.save(path, {"b.q": x, "b.k": x, "b.v": x}, {"layout": "DSH"})
    message = complaint_of(1, "run", "-i", path)
    assert "expected one of 'b.k', 'b.q', 'b.v'" in message or "'b.q', 'b.k', 'b.v'" in message
    message = complaint_of(1, "run", "-i", path, "--tensors", "b.")
    assert "give the layout with --layout shd or --layout hsd" in message
    for layout in ("shd", "hsd"):
        output_of("run", "-i", path, "--tensors", "b.", "--layout", layout)


@pytest.mark.parametrize(
    "key, value, remedied",
    [
        ("softmax_scale", "x", {"softmax_scale": "0.5"}),
        ("causal", "maybe", {"causal": "true"}),
        ("masked", "2", {"masked": "false"}),
        ("layout", "DSH", {"layout": "HSD"}),
        ("is_causal", "true", {"causal": "true"}),
        ("scale", "0.5", {"softmax_scale": "0.5"}),
        ("tensor_layout", "HSD", {"layout": "HSD"}),
        ("attn_mask", "yes", {"masked": "true"}),
        ("window_size", "4", {}),
    ],
)
def test_remedies_for_what_a_file_says(tmp_path, key, value, remedied):
    x, path = values(), tmp_path / "x.safetensors"
    _safetensors.save(path, {"q": x, "k": x, "v": x}, {key: value})
    message = complaint_of(1, "run", "-i", path)
    assert any(
        words in message
        for words in ("Correct it in the file", "Rename it in the file", "leave it out of the file")
    )
    _safetensors.save(path, {"q": x, "k": x, "v": x}, remedied)
    assert "Time:" in output_of("run", "-i", path)


def test_statements_that_contradict_each_other(tmp_path):
    x, names = values(), "qkv"
    paths = [tmp_path / f"{name}.safetensors" for name in names]
    for path, name, scale in zip(paths, names, ("0.5", "0.5", "0.25"), strict=True):
        _safetensors.save(path, {name: x}, {"softmax_scale": scale})
    message = complaint_of(1, "run", "-i", *paths)
    assert "found softmax_scale = '0.25'; expected the '0.5' that was read before it" in message
    assert "Store the value once, or the same one everywhere." in message
    for metadata in ({}, {"softmax_scale": "0.5"}, {"softmax_scale": "0.50"}):
        _safetensors.save(paths[2], {"v": x}, metadata)
        output_of("run", "-i", *paths)


USAGE = {
    "describes made-up input": (
        ["run", "-i", "x.safetensors", "--tokens", "8"],
        [["run", "-i", "x.safetensors"], ["run", "--family", "gaussian", "--tokens", "8"]],
    ),
    "no input: give --input FILE or --family NAME": (
        ["run"],
        [["run", "-i", "x.safetensors"], ["run", "--family", "gaussian", "--tokens", "8"]],
    ),
    "Run with --help for the arguments.": (["run", "--nope"], [["run", "--help"]]),
    "the commands are info, check, run, error, bench": (
        ["bogus"],
        [[name, "--help"] for name in ("info", "check", "run", "error", "bench")],
    ),
    "Leave the budgets out, or the mask.": (
        [
            *("error", "--family", "gaussian", "--tokens", "16", "--no-options", "--causal"),
            *("--budgets", "0.1"),
        ],
        [
            ["error", "--family", "gaussian", "--tokens", "16", "--no-options", "--causal"],
            [
                *("error", "--family", "gaussian", "--tokens", "16", "--no-options"),
                *("--budgets", "0.1"),
            ],
        ],
    ),
}


@pytest.mark.parametrize("words", USAGE)
def test_remedies_for_arguments(tmp_path, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _safetensors.save("x.safetensors", {name: values() for name in "qkv"})
    wrong, remedies = USAGE[words]
    assert words in complaint_of(1 if "budgets" in words else 2, *wrong)
    for arguments in remedies:
        output_of(*arguments)


def test_remedies_for_paths(tmp_path):
    x = values()
    path = tmp_path / "x.safetensors"
    _safetensors.save(path, {"q": x, "k": x, "v": x})
    message = complaint_of(1, "run", "-i", path, "-o", tmp_path / "new" / "out")
    assert "Check that the folder exists" in message
    (tmp_path / "new").mkdir()
    output_of("run", "-i", path, "-o", tmp_path / "new" / "out")
    message = complaint_of(1, "run", "-i", path, "-o", tmp_path)
    assert "found a directory" in message and "Give the path of the file to write." in message
    message = complaint_of(1, "run", "-i", tmp_path)
    assert "Give the path of the tensor file itself." in message
    message = complaint_of(2, "run", "-i", path, "-o", path)
    assert "Give another path." in message
    output_of("run", "-i", path, "-o", tmp_path / "another")
