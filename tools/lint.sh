#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Python code through ruff, linter and formatter; the rules are in pyproject.toml.
# Usage: tools/lint.sh [--fix]     --fix corrects what can be corrected without a decision
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=(check --quiet)
format=(format --quiet --check --diff)
if [[ ${1:-} == --fix ]]; then
  check+=(--fix)
  format=(format --quiet)
fi
[[ -x .venv/bin/ruff ]] && PATH="$PWD/.venv/bin:$PATH"

ruff "${check[@]}"
ruff "${format[@]}"
echo "lint: Python code is clean"
