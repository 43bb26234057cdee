#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds wheels that run on other machines: what they need besides the C and C++ runtime is inside.
# Usage: tools/build_wheel.sh [python...]
#
# One wheel for each interpreter, by default that of .venv; a wheel of Python 3.12 serves all later
# ones. They are put into dist/; standard output names them, one a line.
# Environment: OPENVC_CUDA            ON, OFF or AUTO: with CUDA if nvcc is there (AUTO)
#              OPENVC_WHEEL_PLATFORM  the oldest system to serve (manylinux_2_34_x86_64); the build
#                                     fails where the compiler needs a newer one. 'auto' takes what
#                                     this machine gives
#              OPENVC_WHEEL_BUILD     the build folder; wheels of several interpreters share the
#                                     library in it (build/wheel)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cuda=${OPENVC_CUDA:-AUTO}
platform=${OPENVC_WHEEL_PLATFORM:-manylinux_2_34_x86_64}
build=${OPENVC_WHEEL_BUILD:-build/wheel}
uv=$PWD/.venv/bin/uv

exec 3>&1 >&2
tools/setup.sh
"$uv" pip install --quiet --python .venv/bin/python -r tools/requirements-wheel.txt
export PATH="$PWD/.venv/bin:$PATH"

# One scikit-build-core for all interpreters: it throws away what another one has compiled.
backend=$PWD/build/wheel-environments/backend
grep '^scikit-build-core' tools/requirements-build.txt |
  "$uv" pip install --quiet --python .venv/bin/python --target "$backend" -r -
export PYTHONPATH="$backend"

# $1: an interpreter. Leaves the folder of an environment of it that has what the extension is
# compiled with in $environment; CMake and Ninja are those of .venv.
make_environment() {
  environment=build/wheel-environments/$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [[ -x $environment/bin/python ]] || "$uv" venv --quiet --python "$1" "$environment"
  grep '^\(nanobind\|numpy\)' tools/requirements-build.txt |
    "$uv" pip install --quiet --python "$environment/bin/python" -r -
}

(($#)) || set -- .venv/bin/python
wheels=()
for python in "$@"; do
  environment=.venv
  [[ $python == .venv/bin/python ]] || make_environment "$python"
  rm -rf "$build/unrepaired" "$build/repaired"
  PATH="$PWD/$environment/bin:$PATH" "$uv" build --quiet --wheel --no-build-isolation \
    --python "$environment/bin/python" --out-dir "$build/unrepaired" \
    --config-setting=build-dir="$build/tree" \
    --config-setting=cmake.define.OPENVC_CUDA="$cuda" .
  auditwheel repair --plat "$platform" --wheel-dir "$build/repaired" "$build/unrepaired/"*.whl
  wheels+=("dist/$(basename "$build/repaired/"*.whl)")
  mkdir -p dist
  mv "$build/repaired/"*.whl dist/
done
printf '%s\n' "${wheels[@]}" >&3
