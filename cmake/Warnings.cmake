# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# openvc_warnings: what the project's own sources are compiled with. -Wconversion is there for the
# index code: a video's tensors span more than 2^32 elements, and a silent narrowing is a silent
# wrong result. Sign conversions are left out on both compilers; they would drown it.
add_library(openvc_warnings INTERFACE)
set(openvc_host_warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
set(openvc_cxx_warnings ${openvc_host_warnings} -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in every 'literal + std::string' (GCC bug 105651).
  list(APPEND openvc_cxx_warnings -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes a source that a unit includes for a header, where anonymous namespaces are a fault.
  list(APPEND openvc_cxx_warnings -Wno-subobject-linkage)
endif()
# nvcc compiles the host side of a .cu file from generated code that -Wpedantic, -Wconversion and
# -Wshadow complain about; its own front end checks what was written.
set(openvc_cuda_warnings -Xcompiler=-Wall,-Wextra,-Wno-restrict)
if(OPENVC_WARNINGS_AS_ERRORS)
  list(APPEND openvc_cxx_warnings -Werror)
  list(APPEND openvc_cuda_warnings -Xcompiler=-Werror --Werror=all-warnings)
endif()
target_compile_options(
  openvc_warnings
  INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${openvc_cxx_warnings}>>"
            "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:${openvc_cuda_warnings}>>")
