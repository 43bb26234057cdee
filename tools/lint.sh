#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Python code through ruff, linter and formatter (rules in pyproject.toml); C++ sources through
# clang-tidy (rules in .clang-tidy) where it is installed.
# Usage: tools/lint.sh [--fix] [--all]
#   --fix  ruff corrects what needs no decision
#   --all  clang-tidy reads every source: minutes. Otherwise those that differ from origin/main, or
#          on main from the commit before; a header is read with the source of its name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=(check --quiet)
format=(format --quiet --check --diff)
all=false
for argument in "$@"; do
  case $argument in
    --fix) check+=(--fix) format=(format --quiet) ;;
    --all) all=true ;;
    *) sed -n '4,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
[[ -d .venv/bin ]] && PATH="$PWD/.venv/bin:$PATH"

ruff "${check[@]}"
ruff "${format[@]}"

# Prints the sources of the library to read; the parser of the command line takes clang-tidy minutes
# a file. Without a commit to compare with, as in a shallow clone, that is all of them.
sources() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=$(git rev-parse HEAD)
  [[ $base == $(git rev-parse HEAD) ]] && base=HEAD~1
  if $all || ! git rev-parse --quiet --verify "$base" >/dev/null; then
    git ls-files 'src/*.cpp'
  else
    git diff --name-only --diff-filter=d "$base" -- 'src/*.[ch]pp' |
      sed 's/[.]hpp$/.cpp/' | sort -u | xargs -r git ls-files
  fi
}

if ! command -v clang-tidy >/dev/null; then
  echo "lint: Python code is clean; no clang-tidy on PATH: C++ sources are not read"
  exit
fi
# It tells clang-tidy how a source is compiled; CUDA's are not in it.
commands=build/dev/compile_commands.json
[[ -f $commands ]] || cmake --preset dev --log-level=WARNING
mapfile -t files < <(sources | grep -Ff - <(sed -n "s|^ *\"file\": \"$PWD/\(src/.*\)\".*|\1|p" "$commands"))
if ((${#files[@]})); then
  # GCC's own warnings are unknown to it.
  printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/dev --quiet \
    --extra-arg=-Wno-unknown-warning-option
fi
echo "lint: Python code and ${#files[@]} C++ sources are clean"
