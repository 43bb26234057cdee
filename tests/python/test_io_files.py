# SPDX-License-Identifier: BSD-3-Clause
"""The C++ tensor file readers and writers against the Python packages of the formats."""

import os
import pathlib
import subprocess

import numpy
import pytest

safetensors = pytest.importorskip("safetensors")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

NPY_DTYPES = [
    "?",
    "u1",
    "i1",
    "u2",
    "i2",
    "u4",
    "i4",
    "u8",
    "i8",
    "f2",
    "f4",
    "f8",
    "c8",
]
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 4)]


@pytest.fixture
def copy_tensor_file(tmp_path):
    """Copies a file through the C++ reader and writer; returns (path of the copy, error text)."""
    tool = pathlib.Path(os.environ.get("OPENVC_BUILD_DIR", ""), "tests", "copy_tensor_file")
    if not os.environ.get("OPENVC_BUILD_DIR") or not tool.exists():
        pytest.skip("OPENVC_BUILD_DIR names no build with the C++ tests")

    def copy(source, suffix):
        copied = tmp_path / f"copied{suffix}"
        result = subprocess.run([tool, source, copied], check=False, capture_output=True, text=True)
        assert (result.returncode == 0) == copied.exists()
        return copied, result.stderr

    return copy


def array_of(dtype, shape):
    raw = numpy.random.default_rng(0).bytes(int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize)
    if numpy.dtype(dtype) == bool:
        raw = bytes(byte & 1 for byte in raw)
    return numpy.frombuffer(raw, dtype).reshape(shape)


def same_array(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", NPY_DTYPES)
def test_npy_copy_has_the_bytes_of_numpy(copy_tensor_file, tmp_path, dtype, shape):
    source = tmp_path / "source.npy"
    numpy.save(source, array_of(dtype, shape))
    copied, error = copy_tensor_file(source, ".npy")
    assert copied.read_bytes() == source.read_bytes(), error


def test_npy_bfloat16(copy_tensor_file, tmp_path, bfloat16):
    source = tmp_path / "source.npy"
    array = array_of(bfloat16, (3, 5))
    numpy.save(source, array)
    copied, error = copy_tensor_file(source, ".npy")
    assert copied.read_bytes() == source.read_bytes(), error
    copied, error = copy_tensor_file(source, ".safetensors")
    assert same_array(safetensors_numpy.load_file(copied)["source"], array)


@pytest.mark.parametrize(
    "array, advice",
    [
        (numpy.zeros((2, 3), ">f4"), "newbyteorder('<')"),
        (numpy.zeros((2, 3), "f4", order="F"), "numpy.ascontiguousarray"),
        (numpy.zeros(2, [("a", "f4")]), "array['field']"),
        (numpy.array(["text"]), "save an array of numbers"),
    ],
)
def test_npy_refusals_name_the_remedy(copy_tensor_file, tmp_path, array, advice):
    source = tmp_path / "source.npy"
    numpy.save(source, array)
    _, error = copy_tensor_file(source, ".npy")
    assert advice in error


def test_safetensors_both_directions(copy_tensor_file, tmp_path, bfloat16):
    source = tmp_path / "source.safetensors"
    tensors = {
        f"{numpy.dtype(dtype).name} {shape}": array_of(dtype, shape)
        for dtype in [*NPY_DTYPES, bfloat16]
        for shape in SHAPES
    }
    tensors['"é\\\n😀'] = array_of("f4", (2,))
    metadata = {"": "empty key", "note": 'é\t"\\\x01', "empty": ""}
    safetensors_numpy.save_file(tensors, source, metadata)
    copied, error = copy_tensor_file(source, ".safetensors")
    assert error == ""
    loaded = safetensors_numpy.load_file(copied)
    assert loaded.keys() == tensors.keys()
    for name, array in tensors.items():
        assert same_array(loaded[name], array), name
    with safetensors.safe_open(copied, "numpy") as file:
        assert file.metadata() == metadata


def test_safetensors_without_tensors(copy_tensor_file, tmp_path):
    source = tmp_path / "source.safetensors"
    safetensors_numpy.save_file({}, source)
    copied, error = copy_tensor_file(source, ".safetensors")
    assert safetensors_numpy.load_file(copied) == {}, error


def test_pytorch_files_are_sent_to_python(copy_tensor_file, tmp_path):
    torch = pytest.importorskip("torch")
    source = tmp_path / "source.pt"
    torch.save({"q": torch.zeros(2)}, source)
    _, error = copy_tensor_file(source, ".safetensors")
    assert "weights_only" in error
