#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a representative part of the GPU tests in the folder it is in under compute-sanitizer, a line
# per tool, and ends with 'N passed, N failed'. Usage: sanitize.sh [tool...]
# Tools: memcheck initcheck racecheck synccheck (all of them). Environment: OPENVC_TOOL_SECONDS,
# limit per tool (240)
#
# Everything that differs in the kernels: tails, strides, repair, residual columns, masks, probability
# bytes, graphs, streams, allocation through the caller, the finite check. What needs much memory or
# many shapes stays outside, and the two slow tools get small shapes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export LD_LIBRARY_PATH="$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
limit=${OPENVC_TOOL_SECONDS:-240}
small='PrepareGpu.CrossAttention:PrepareGpu.UnalignedPointers:Sm90Attention.StridedOutput'
small+=':Sm90Attention.Causal:Sm90Attention.RepairRows:Sm90Attention.ExtraSteps'
small+=':ApiCudaMemory.TakesMemoryFromTheCallersAllocator:ApiCuda.Repair'
small+=':FindNonFinite.FirstAndLastElements:Rules/SoftmaxTiles.*'
small+=':Kernels/SmallAttention.*:Kernels/PackedAttention.*'
all='PrepareGpu.*:Sm90Attention.*:Sm90Launch.*:ApiCuda.*:ApiCudaMemory.*:ApiCudaExecution.*'
all+=':FindNonFinite.*:Rules/SoftmaxTiles.*:Kernels/*'
all+='-*Beyond32Bits:*GridHasRows:*RandomCases:*Families:*Options:*LongSequences:*SeveralWaves'
all+=':*AutomaticDecisions:*MoreThanTheDeviceHas*:*RunsRepeat*:*LaunchesOnManyStreams'
if ! command -v compute-sanitizer >/dev/null; then
  echo "sanitize: compute-sanitizer is not installed; it comes with the CUDA toolkit"
  exit 1
fi
tools=("$@")
((${#tools[@]})) || tools=(memcheck initcheck racecheck synccheck)
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for tool in "${tools[@]}"; do
  tests=$all
  [[ $tool == racecheck || $tool == synccheck ]] && tests=$small
  start=$SECONDS
  timeout "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 \
    ./openvc_gpu_tests --gtest_filter="$tests" >"$log" 2>&1
  status=$?
  ran=$(grep -c '^\[       OK \]' "$log")
  verdict=$(grep -o 'ERROR SUMMARY: .*\|RACECHECK SUMMARY: .*' "$log" | tail -1)
  if ((status == 0 && ran > 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
  printf '%-10s %3d tests, exit status %d, %d s; %s\n' "$tool" "$ran" "$status" \
    $((SECONDS - start)) "${verdict:-no summary}"
  ((status == 0)) || tail -n 40 "$log"
done
echo "$passed passed, $failed failed"
((failed == 0))
