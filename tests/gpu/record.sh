#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs everything that tests the GPU code, in the folder it is in (tools/bundle_gpu.sh makes it), and
# writes the record: docs/results/h200/gpu_tests.txt is such a file, whole and unedited.
# Usage: record.sh <file> [checkout]     with a checkout: its Python tests with the marker gpu, too
#
# The last line is the SHA-256 of the lines above; a test holds the record in the repository to it.
set -uo pipefail

if (($# < 1)); then
  sed -n '4,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 2
fi
file=$(realpath -m "$1")
checkout=${2:+$(realpath "$2")}
cd "$(dirname "${BASH_SOURCE[0]}")"
export LD_LIBRARY_PATH="$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$(dirname "$file")"
failed=0

# $1: title; the rest is the command. Its last lines are the record, all of them on the terminal.
section() {
  local title=$1 status log
  shift
  log=$(mktemp)
  "$@" 2>&1 | tee "$log" >&2
  status=${PIPESTATUS[0]}
  ((status == 0)) || failed=1
  printf '\n== %s: exit status %d\n' "$title" "$status"
  tail -n "$lines" "$log"
  rm -f "$log"
}

{
  echo "Written by tests/gpu/record.sh; not edited by hand."
  lines=200
  section "tests/gpu/run.sh" ./run.sh
  lines=1
  section "device_codec" ./device_codec
  lines=60
  section "tests/gpu/sanitize.sh" ./sanitize.sh
  if [[ -n $checkout ]]; then
    lines=5
    cd "$checkout" || exit 1
    section "pytest -m gpu" python3 -m pytest -q -m gpu -p no:cacheprovider tests/python
  fi
} >"$file"
sum=$(sha256sum <"$file")
echo "sha256 of the lines above: ${sum%% *}" >>"$file"
exit "$failed"
