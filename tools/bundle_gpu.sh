#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Puts everything that needs a GPU into one folder, which runs on a machine without build tools.
# Usage: tools/bundle_gpu.sh <folder> [target...]
#
# Targets are executables of the build; by default the GPU tests, the codec test, the benchmarks of
# benchmarks/cuda and the command line tool. Needs nvcc, not a GPU. In the folder: ./run.sh, ./sanitize.sh,
# and ./record.sh for both.
# Environment: BUILD  the build folder (build/bundle)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# < 1)); then
  sed -n '4,10s/^# \{0,1\}//p' "$0"
  exit 2
fi
folder=$1
shift
build=${BUILD:-build/bundle}
targets=("$@")
if ((${#targets[@]} == 0)); then
  targets=(openvc_gpu_tests device_codec open-vc-attn)
  for program in benchmarks/cuda/*.cu; do
    targets+=("$(basename "$program" .cu)")
  done
fi

# Only the C library and the driver are left to the other machine; other shared libraries travel.
cmake -S . -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DOPENVC_CUDA=ON \
  -DOPENVC_TESTS=ON -DOPENVC_BENCHMARKS=ON \
  -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc"
cmake --build "$build" --target "${targets[@]}"

mkdir -p "$folder"
for target in "${targets[@]}"; do
  program=$(find "$build" -type f -name "$target" -perm -u+x | head -n 1)
  strip -o "$folder/$target" "$program"
  # What ldd resolves below the system's own libraries.
  ldd "$program" | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.*) ;;
      *) cp -L "$library" "$folder/" ;;
    esac
  done
done
install -m 755 tests/gpu/run.sh tests/gpu/sanitize.sh tests/gpu/record.sh "$folder/"
install -m 644 tests/golden/contract_v*.txt tests/golden/h200_outputs.bin "$folder/"
git describe --always --dirty --abbrev=12 >"$folder/commit.txt"
du -sh "$folder"
