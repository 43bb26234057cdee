#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs the GPU tests of the folder it is in and ends with 'N passed, N failed[, N skipped]'.
# Usage: run.sh [gtest filter]        environment: OPENVC_SUITE_SECONDS, limit per suite (300)
#
# Every suite has a process of its own: a fault of the device ends one suite, not all of them. What
# it prints goes into the record that record.sh writes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export LD_LIBRARY_PATH="$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPENVC_GOLDEN_DIRECTORY=$PWD
filter=${1:-*}
limit=${OPENVC_SUITE_SECONDS:-300}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo "run: no NVIDIA GPU here (/dev/nvidia0 and the like)"
  exit 1
fi
echo "GPU tests, $(date -u +%F), commit $(cat commit.txt)"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | uniq -c |
  sed 's/^ *\([0-9]*\) /\1 x /'

if ! suites=$(./openvc_gpu_tests --gtest_list_tests --gtest_filter="$filter"); then
  echo "run: openvc_gpu_tests does not start"
  exit 1
fi
passed=0 failed=0 skipped=0

for suite in $(grep -o '^[^ ]*[.]' <<<"$suites"); do
  # Only tests that the filter names: their lines follow the suite's, indented.
  names=$(awk -v suite="$suite" '/^[^ ]/ { inside = $1 == suite; next }
                                 inside { printf "%s%s", separator, suite $1; separator = ":" }' \
    <<<"$suites")
  start=$SECONDS
  timeout "$limit" ./openvc_gpu_tests --gtest_filter="$names" --gtest_print_time=1 >"$log" 2>&1
  status=$?
  begun=$(grep -c '^\[ RUN      \]' "$log")
  ok=$(grep -c '^\[       OK \]' "$log")
  skips=$(grep -c '^\[  SKIPPED \].* ms)$' "$log")  # the summary names them again, without a time
  bad=$((begun - ok - skips))
  ((status != 0 && bad == 0)) && bad=1
  passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skips))
  printf '%-40s %3d passed, %d failed, %d skipped, %d s\n' "${suite%.}" "$ok" "$bad" "$skips" \
    $((SECONDS - start))
  ((skips == 0)) || grep -m1 -A1 -i 'skipped$' "$log" | tail -1
  if ((bad > 0)); then
    ((status != 124)) || echo "run: stopped after $limit s"
    grep -v '^\[ \(RUN\|      OK\)' "$log" | tail -n 150
  fi
done

# What users run; without a line about the GPU it has only looked at the CPU. A bundle without the
# program is not whole, so that counts as a failure.
if [[ $filter == '*' ]]; then
  start=$SECONDS ok=0 bad=1
  if [[ ! -x open-vc-attn ]]; then
    echo "run: this folder has no open-vc-attn; make it with tools/bundle_gpu.sh without targets" >"$log"
  elif timeout "$limit" ./open-vc-attn check --smoke >"$log" 2>&1 &&
    grep -q '^sm.* on cuda:0 .* passed$' "$log"; then
    ok=1 bad=0
  fi
  passed=$((passed + ok)) failed=$((failed + bad))
  printf '%-40s %3d passed, %d failed, %d skipped, %d s\n' 'open-vc-attn check --smoke' "$ok" "$bad" 0 \
    $((SECONDS - start))
  ((bad == 0)) || tail -n 40 "$log"
fi
echo "$passed passed, $failed failed$( ((skipped)) && echo ", $skipped skipped")"
((failed == 0 && passed > 0))
