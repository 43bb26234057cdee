#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Prepares the machine: system packages (Debian, Ubuntu) and the Python environment .venv.
# Usage: tools/setup.sh [--tests]     --tests adds what the test suite needs, PyTorch among it
#
# Environment: PYTHON              the interpreter that .venv is made from (python3)
#              OPENVC_TORCH_INDEX  an index that serves PyTorch for the CPU alone: 200 MB instead
#                                  of the 3 GB of the default index
# Nothing is done twice: a second call takes less than a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_tests=false
for argument in "$@"; do
  case $argument in
    --tests) with_tests=true ;;
    *) echo "setup: unknown argument '$argument'; usage: tools/setup.sh [--tests]" >&2; exit 2 ;;
  esac
done

python=${PYTHON:-python3}
system_packages=(build-essential git ninja-build cmake python3-venv python3-dev
  libfmt-dev libcli11-dev nlohmann-json3-dev libhwy-dev
  libgtest-dev libgmock-dev libbenchmark-dev libboost-context-dev)

say() { printf 'setup: %s\n' "$*"; }
source tools/debian_packages.sh

# uv unpacks PyTorch's 3 GB in a fifth of pip's time, and shares them between clones.
pip_install() { .venv/bin/uv pip install --quiet --python .venv/bin/python "$@"; }

# $1: name of a set of packages; the rest: a command that installs it. Skipped while neither the
# interpreter nor this folder's lists have changed since.
install_once() {
  local name=$1 state
  shift
  state=$(cat tools/setup.sh tools/requirements-*.txt | sha256sum)
  [[ $(cat ".venv/.installed-$name" 2>/dev/null) == "$state" ]] && return
  say "Python packages for $name"
  "$@"
  printf '%s' "$state" >".venv/.installed-$name"
}

install_test_packages() {
  # The default index serves PyTorch for Linux with CUDA, which imports without a GPU too.
  pip_install ${OPENVC_TORCH_INDEX:+--index-url "$OPENVC_TORCH_INDEX"} 'torch>=2.4,<3'
  pip_install -r tools/requirements-test.txt
  # A folder of its own, which tests/python/test_diffusers_oldest.py puts in front; the rest of what
  # it needs is there.
  pip_install --no-deps --target .venv/diffusers-oldest 'diffusers==0.36.0' httpx httpcore
  # The headers of CuTe, for tests/cute; what its Python code needs is not.
  pip_install --no-deps --target .venv/cutlass 'nvidia-cutlass==4.2.0.0'
}

install_debian_packages "${system_packages[@]}"
if [[ ! -x .venv/bin/uv ]]; then
  say "making .venv from $("$python" --version)"
  "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
fi
install_once build pip_install -r tools/requirements-build.txt
if $with_tests; then
  install_once tests install_test_packages
  if command -v nvcc >/dev/null; then
    install_once cuda pip_install -r tools/requirements-cuda.txt
  fi
fi
