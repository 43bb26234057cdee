# SPDX-License-Identifier: BSD-3-Clause
"""What the package holds for C++ projects, and that extension and program share it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import open_vc_attn
from open_vc_attn import _openvc, _paths

CONSUMER = Path(__file__).parents[1] / "package"
LIBRARY = "libopenvc.so"

# Mangled names, after the prefix of guards, tables and members: of the interface, of the layers
# below it, and instances of the standard library's templates, which every C++ object exports.
PREFIX = r"_Z(GV)?(T[VIS])?Z?N?K?"
OWN = re.compile(rf"openvc_|{PREFIX}6openvc")
INNER = re.compile(rf"{PREFIX}6openvc(3api|3cpu|4cuda|2io|8numerics|8schedule|5study)")
STANDARD = re.compile(rf"{PREFIX}(S[tab]|9__gnu_cxx)")


def tool(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}")
    return path


def output_of(*command):
    result = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def library():
    return Path(open_vc_attn.cmake_dir()).parents[1] / LIBRARY


def loaded_libraries(path):
    """The shared libraries that the loader would take for `path`, by name."""
    found = re.findall(r"^\s*(\S+) => (/\S+) ", output_of(tool("ldd"), path), re.MULTILINE)
    return {name: Path(target).resolve() for name, target in found}


def test_a_cmake_project_links_the_library_of_the_package(tmp_path):
    output_of(tool("cmake"), "-S", CONSUMER, "-B", tmp_path, f"-Dopenvc_DIR={_paths.cmake_dir()}")
    output_of(tool("cmake"), "--build", tmp_path)
    assert output_of(tmp_path / "consumer") == f"openvc {open_vc_attn.__version__}: right\n"
    assert loaded_libraries(tmp_path / "consumer")[LIBRARY] == library().resolve()


def test_a_compiler_needs_the_header_folder_and_the_library(tmp_path):
    target = tmp_path / "consumer"
    output_of(
        *(tool("g++"), "-std=c++20", f"-I{open_vc_attn.include_dir()}", CONSUMER / "consumer.cpp"),
        *(library(), f"-Wl,-rpath,{library().parent}", "-o", target),
    )
    assert output_of(target) == f"openvc {open_vc_attn.__version__}: right\n"


@pytest.mark.parametrize("user", [_openvc.__file__, _paths.PROGRAM], ids=["extension", "program"])
def test_extension_and_program_share_one_library(user):
    assert loaded_libraries(user)[LIBRARY] == library().resolve()


def exported_symbols(path):
    """The names, mangled, that `path` defines for others."""
    lines = output_of(tool("nm"), "--dynamic", "--defined-only", path).splitlines()
    return [line.split()[-1] for line in lines]


def test_the_library_exports_its_interface_and_nothing_else():
    symbols = exported_symbols(library())
    assert {"openvc_attention", "openvc_version"} <= set(symbols)
    assert any(symbol.startswith("_ZN6openvc9attentionE") for symbol in symbols)
    assert [s for s in symbols if INNER.match(s) or not (OWN.match(s) or STANDARD.match(s))] == []
