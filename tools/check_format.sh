#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Holds every C++ and CUDA file that git knows to .clang-format. Usage: tools/check_format.sh [--fix]
# Takes the pinned clang-format of .venv when it is there: another version formats differently.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run --Werror)
[[ ${1:-} == --fix ]] && mode=(-i)
[[ -x .venv/bin/clang-format ]] && PATH="$PWD/.venv/bin:$PATH"

mapfile -d '' files < <(git ls-files -z '*.hpp' '*.cpp' '*.h' '*.cuh' '*.cu')
if ((${#files[@]})); then
  clang-format "${mode[@]}" "${files[@]}"
fi
echo "format: ${#files[@]} files are as .clang-format wants them"
