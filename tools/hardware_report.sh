#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs everything that tells how this library does on the GPU of this machine, and packs what was
# found into one file to send back (docs/hardware_records.md).
# Usage: tools/hardware_report.sh [option...]
#   --dry-run        lists the parts and their commands; needs no GPU
#   --out FILE       the archive (hardware-report-<GPU>-<date>.tar.gz)
#   --folder FOLDER  where results are collected (build/hardware-report); parts of an earlier call
#                    stay in it
#   --bundle FOLDER  what tools/bundle_gpu.sh makes (build/hardware-bundle); made if it is not there
#   --only A,B       these parts alone
#   --skip A,B       all but these
#   --quick          shorter sequences, ten seconds of soak, two shapes in the benchmark
# Environment: PYTHON  an interpreter with this package and torch (python3); what else it has of
# the benchmark's peers takes part. OPENVC_PART_SECONDS  limit of a part (1800)
#
# A part that fails does not stop the others. Exit status: 0 if no part failed, 1 if one did, 2 for
# wrong arguments or without a GPU. About half an hour.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

names=(build device info first-use check gpu-tests codec sanitizer python-tests soak benchmark)
dry_run=false quick=false
out="" folder=$top/build/hardware-report bundle=$top/build/hardware-bundle only="" skip=""
python=${PYTHON:-python3}
limit=${OPENVC_PART_SECONDS:-1800}

refuse() {
  echo "hardware_report: $*" >&2
  exit 2
}

# Names of a list A,B; one that is no part ends the script.
check_names() {
  local name
  for name in ${1//,/ }; do
    [[ " ${names[*]} " == *" $name "* ]] ||
      refuse "'$name' is no part; expected some of ${names[*]}, separated by commas"
  done
}

while (($#)); do
  case $1 in
    --dry-run) dry_run=true ;;
    --quick) quick=true ;;
    --out | --folder | --bundle | --only | --skip)
      (($# > 1)) || refuse "$1 needs a value"
      case $1 in
        --out) out=$(realpath -m "$2") ;;
        --folder) folder=$(realpath -m "$2") ;;
        --bundle) bundle=$(realpath -m "$2") ;;
        --only) check_names "$2" && only=$2 ;;
        --skip) check_names "$2" && skip=$2 ;;
      esac
      shift
      ;;
    *)
      sed -n '4,20s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 2
      ;;
  esac
  shift
done

gpu=""
if ! $dry_run; then
  if ! gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1) || [[ -z $gpu ]]; then
    refuse "no NVIDIA GPU can be used here; nvidia-smi says: ${gpu:-nothing}. Expected a machine" \
      "with a GPU and its driver; --dry-run lists the parts without one"
  fi
  gpu=${gpu%%$'\n'*}
fi

# What a machine says of itself, without what names it: serial numbers, ids, other people's processes.
device() {
  nvidia-smi -q | awk '/^ *Processes/ { exit }
    /Serial|UUID|PDI|GUID/ { sub(/:.*/, ": (left out)") }
    { print }' >"$folder/nvidia-smi-q.txt"
  {
    echo "commit: $(cat "$bundle/commit.txt" 2>/dev/null || git -C "$top" describe --always --dirty)"
    uname -srm
    ldd --version | head -n 1
    grep -m 1 'model name' /proc/cpuinfo
    nproc
    nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv
    nvcc --version 2>&1 | tail -n 2
    compute-sanitizer --version 2>&1 | head -n 1
    "$python" --version
    "$python" -m pip list 2>/dev/null |
      grep -iE '^(open-vc-attn|torch|triton|nvidia|cuda|flash|fa3|sage|cutlass|numpy|pytest)'
  } >"$folder/versions.txt" 2>&1
  cat "$folder/versions.txt"
  [[ -s $folder/nvidia-smi-q.txt ]]
}

# Why a part cannot run here; empty if it can.
missing_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" && return; }
  done
}
missing_modules() {
  local module found
  for module in "$@"; do
    found=$("$python" -c "import $module" 2>&1) ||
      { echo "$python cannot import $module: ${found##*$'\n'}" && return; }
  done
}

wanted() {
  [[ -z $only || ",$only," == *",$1,"* ]] && [[ ",$skip," != *",$1,"* ]]
}

number=0 running=""
# Runs a part: its name, what is missing for it (a command that says so), and its command.
part() {
  local name=$1 missing=$2 reason status start seconds verdict
  shift 2
  number=$((number + 1))
  printf '[%2d/%d] %-13s' "$number" "${#names[@]}" "$name"
  if ! wanted "$name"; then
    echo "not asked for"
    return
  fi
  if $dry_run; then
    echo "$*"
    return
  fi
  reason=$($missing)
  if [[ -n $reason ]]; then
    echo "skipped: $reason"
    printf 'skipped\t-\t0\t%s\n' "$reason" >"$folder/status/$name"
    return
  fi
  start=$SECONDS
  # In the background, so that an interrupt reaches this script at once.
  timeout --kill-after=10 "$limit" bash -c 'set -uo pipefail; "$@"' part "$@" \
    >"$folder/logs/$name.txt" 2>&1 </dev/null &
  running=$!
  wait "$running"
  status=$?
  seconds=$((SECONDS - start))
  verdict=passed
  ((status == 0)) || verdict=failed
  reason=$(grep -v '^ *$' "$folder/logs/$name.txt" | tail -n 1 | tr -d '\t\r' | cut -c 1-160)
  ((status != 124)) || reason="stopped after $limit s"
  printf '%s\t%d\t%d\t%s\n' "$verdict" "$status" "$seconds" "$reason" >"$folder/status/$name"
  echo "$verdict, $seconds s: $reason"
}

parts() {
  local smoke=() soak=60 budget=440 options=()
  ! $quick || smoke=(--smoke) soak=10 budget=120 options=(--quick)
  local package="missing_modules torch open_vc_attn"
  # The self-check of a first use has a part of its own: elsewhere it would hide what is wrong.
  if [[ -x $bundle/openvc_gpu_tests ]]; then
    part build true true
  else
    part build "missing_tools nvcc cmake ninja" env BUILD="$top/build/bundle" \
      "$top/tools/bundle_gpu.sh" "$bundle"
  fi
  part device true device
  part info true "$bundle/open-vc-attn" info
  OPEN_VC_ATTN_SELF_CHECK=1 part first-use true "$bundle/open-vc-attn" check --smoke
  export OPEN_VC_ATTN_SELF_CHECK=0
  part check true "$bundle/open-vc-attn" check "${smoke[@]}"
  part gpu-tests true "$bundle/run.sh"
  part codec true "$bundle/device_codec"
  part sanitizer "missing_tools compute-sanitizer" "$bundle/sanitize.sh"
  part python-tests "$package pytest" "$python" -m pytest -q -m gpu -p no:cacheprovider \
    "$top/tests/python"
  part soak "$package" "$python" "$top/tests/gpu/soak.py" --seconds "$soak" \
    --json "$folder/soak.json"
  [[ ! -e $bundle/commit.txt ]] || options+=(--commit "$(cat "$bundle/commit.txt")")
  part benchmark "$package" env PYTHON="$python" "$top/benchmarks/h200/run.sh" \
    "$folder/benchmark" "$budget" "${options[@]}"
}

# Every part's result, from this call or an earlier one, as text and as JSON.
summarize() {
  local name verdict status seconds detail separator=""
  {
    echo "Open-VC Attention on $gpu, $(date -u +%F), commit $(sed -n 's/^commit: //p' \
      "$folder/versions.txt" 2>/dev/null)"
    for name in "${names[@]}"; do
      verdict="not run" seconds=0 detail=""
      [[ ! -e $folder/status/$name ]] ||
        IFS=$'\t' read -r verdict status seconds detail <"$folder/status/$name"
      printf '%-13s %-8s %5d s  %s\n' "$name" "$verdict" "$seconds" "$detail"
    done
  } >"$folder/summary.txt"
  {
    echo '{'
    for name in "${names[@]}"; do
      [[ -e $folder/status/$name ]] || continue
      IFS=$'\t' read -r verdict status seconds detail <"$folder/status/$name"
      [[ $status != - ]] || status=null
      printf '%s  "%s": {"verdict": "%s", "exit_status": %s, "seconds": %d}' \
        "$separator" "$name" "$verdict" "$status" "$seconds"
      separator=$',\n'
    done
    printf '\n}\n'
  } >"$folder/parts.json"
}

pack() {
  summarize
  local stem
  stem=hardware-report-$(tr -cs 'A-Za-z0-9' '-' <<<"$gpu" | sed 's/-*$//')-$(date -u +%F)
  out=${out:-$PWD/$stem.tar.gz}
  mkdir -p "$(dirname "$out")"
  tar -czf "$out" -C "$folder" --exclude=./status --transform "s,^\.,$stem," .
  echo
  cat "$folder/summary.txt"
  echo
  echo "hardware_report: $out ($(du -h "$out" | cut -f 1)); docs/hardware_records.md says where to send it"
}

if $dry_run; then
  parts
  exit 0
fi
mkdir -p "$folder/logs" "$folder/status" || exit 2
# Programs of the bundle find the libraries beside them.
export LD_LIBRARY_PATH="$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPENVC_GOLDEN_DIRECTORY=$bundle
export -f device
export folder bundle python top
trap 'echo; kill "$running"; pack; exit 130' INT TERM
echo "hardware_report: $gpu; results in $folder"
parts
pack
for name in "${names[@]}"; do
  ! wanted "$name" || ! grep -qs '^failed' "$folder/status/$name" || exit 1
done
