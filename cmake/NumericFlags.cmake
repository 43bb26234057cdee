# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# openvc_numeric_flags: the compiler options that result bits depend on. A compiler that may contract
# a*b+c into a fused multiply-add gives other bits at -O2 than at -O2 -mfma; the numeric contract
# spells every fma instead, and these options forbid all others. Every layer gets them through
# openvc_numerics.
add_library(openvc_numeric_flags INTERFACE)
target_compile_options(
  openvc_numeric_flags
  INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-fast-math>>"
            "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off>>")
