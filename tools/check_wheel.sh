#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs a wheel into a bare environment and uses it there. Every shared library that it needs must
# come with it or belong to the C and C++ runtime, so what else this machine has does not matter.
# Usage: tools/check_wheel.sh <wheel> [python]     by default the interpreter of .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# < 1 || $# > 2)); then
  sed -n '4,6s/^# \{0,1\}//p' "$0"
  exit 2
fi
wheel=$1
python=${2:-.venv/bin/python}
runtime='linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libstdc[+][+]|libgcc_s'

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/uv venv --quiet --python "$python" "$scratch/environment"
.venv/bin/uv pip install --quiet --python "$scratch/environment/bin/python" numpy "$wheel"
cd "$scratch"
packages=$(realpath environment/lib/python*/site-packages)

foreign=0
while read -r file; do
  needed=$(env -i ldd "$file" | grep -v "=> $packages/" | grep -Ev "^\s*(/lib64/)?($runtime)[.]so") ||
    continue
  echo "check_wheel: ${file#"$packages/"} needs libraries that are not in the wheel:" $needed >&2
  foreign=1
done < <(find "$packages"/open_vc_attn{,.libs} -type f \( -name '*.so*' -o -path '*/bin/*' \))
((foreign == 0)) || exit 1

env -i environment/bin/open-vc-attn check --smoke
env -i environment/bin/python - <<'END'
import platform

import numpy

import open_vc_attn

x = numpy.full((300, 2, 128), 0.5, numpy.float16)
if not (open_vc_attn.attention(x, x, x) == 0.5).all():
    raise SystemExit("check_wheel: attention over equal values is not that value")
commit = open_vc_attn.info()["commit"]
print(
    f"check_wheel: open_vc_attn {open_vc_attn.__version__}, commit {commit}, works on "
    f"Python {platform.python_version()}"
)
END
