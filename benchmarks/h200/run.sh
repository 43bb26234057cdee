#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Every figure of the documentation in one go: measures until all steps are done or the seconds are
# spent, goes on without a contender that ends the process, and writes tables and charts.
# Usage: run.sh <results folder> <seconds> [option of attention.py...]
#
# The folder gets results.json (after every step), summary.json, README.md, error.svg and speed.svg.
# Called again with the same folder, it adds the steps that are missing.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if (($# < 2)) || ! [[ $2 =~ ^[0-9]+$ ]]; then
  sed -n '4,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 2
fi
folder=$1
seconds=$2
shift 2
python=${PYTHON:-python3}
attempts=4  # a contender that crashes costs one
shortest=10 # seconds in which another attempt could still measure something
usage_error=2
export PYTHONUNBUFFERED=1

for ((attempt = 1; attempt <= attempts; ++attempt)); do
  left=$((seconds - SECONDS))
  ((attempt == 1 || left >= shortest)) || break
  "$python" "$here/attention.py" --out "$folder" --resume --budget "$left" "$@"
  status=$?
  if ((status == 0 || status == usage_error)); then
    break
  fi
  echo "run: attempt $attempt ended with status $status"
done
if [[ -e $folder/results.json ]]; then
  "$python" "$here/report.py" "$folder" || exit 1
fi
exit "$status"
