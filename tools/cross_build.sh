#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds library, program and C++ tests for another system, without CUDA, and runs the tests in an
# emulator. Needs Debian 12.
# Usage: tools/cross_build.sh <system> [target...]
#   <system>    aarch64-linux-gnu, under qemu-user
#   [target...] of the build; tests among them are run. By default all of this list, the quickest
#               first: unit_schedule_tests golden_tests unit_numerics_tests unit_io_tests
#               unit_cpu_tests unit_api_tests unit_study_tests open-vc-attn
# Environment: CMAKE_BUILD_PARALLEL_LEVEL  sources that are compiled at a time
# The model of a CUDA machine is left out: its kernels under an emulator would take hours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'cross_build: %s\n' "$*"; }
source tools/debian_packages.sh
source tools/cross_libraries.sh

(($#)) || { sed -n '5,12s/^# \{0,1\}//p' "$0"; exit 2; }
system=$1
shift
(($#)) || set -- unit_schedule_tests golden_tests unit_numerics_tests unit_io_tests unit_cpu_tests \
  unit_api_tests unit_study_tests open-vc-attn

tools/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
prepare_cross_build "$system"
build=build/cross/$system/tests
cmake --preset dev -B "$build" --log-level=WARNING "${cross_options[@]}" -DOPENVC_BENCHMARKS=OFF

failed=()
for target in "$@"; do
  cmake --build "$build" --target "$target"
  case $target in
    unit_*_tests) tests="^unit/$(sed 's/^unit_//; s/_tests$//; s,_,/,g' <<<"$target")/" ;;
    *_tests) tests="^${target%_tests}/" ;;
    open-vc-attn) tests= ;;
    *) continue ;;
  esac
  start=$SECONDS
  if [[ -z $tests ]]; then
    program=$(find "$build/bin" -name 'open-vc-attn*' -type f)
    "${cross_emulator[@]}" "$program" info || failed+=("$target")
  else
    ctest --test-dir "$build" -R "$tests" --output-on-failure --no-tests=error || failed+=("$target")
  fi
  say "$target: $((SECONDS - start)) s in the emulator"
done
if ((${#failed[@]})); then
  say "failed on $system: ${failed[*]}"
  exit 1
fi
