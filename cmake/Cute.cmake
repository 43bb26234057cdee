# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# openvc_find_cute(<result>)
#
# Include folders of CuTe, NVIDIA's definitions of its instructions, and of the CUDA headers that it
# needs; an empty list, and a line that says why, where there are none. Tests alone use them.
function(openvc_find_cute result)
  set(${result} "" PARENT_SCOPE)
  # tools/setup.sh --tests puts the package nvidia-cutlass there.
  find_path(OPENVC_CUTE_INCLUDE_DIR cute/tensor.hpp
            PATHS "${PROJECT_SOURCE_DIR}/.venv/cutlass/cutlass_library/source/include"
            NO_DEFAULT_PATH)
  # The toolkit's, or those that PyTorch with CUDA brings.
  file(GLOB wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu1*")
  find_path(OPENVC_CUDA_RUNTIME_INCLUDE_DIR cuda_runtime.h
            HINTS ENV CUDA_PATH
            PATHS /usr/local/cuda ${wheels}
            PATH_SUFFIXES include)
  find_path(OPENVC_CUDA_STD_INCLUDE_DIR cuda/std/utility
            PATHS "${OPENVC_CUDA_RUNTIME_INCLUDE_DIR}/cccl" "${OPENVC_CUDA_RUNTIME_INCLUDE_DIR}"
            NO_DEFAULT_PATH)
  mark_as_advanced(OPENVC_CUTE_INCLUDE_DIR OPENVC_CUDA_RUNTIME_INCLUDE_DIR
                   OPENVC_CUDA_STD_INCLUDE_DIR)
  if(NOT OPENVC_CUTE_INCLUDE_DIR)
    message(STATUS "CuTe: nothing is compared with its definitions (no package nvidia-cutlass in "
                   ".venv; tools/setup.sh --tests installs it, or point OPENVC_CUTE_INCLUDE_DIR at "
                   "the include folder of CUTLASS 4)")
  elseif(NOT OPENVC_CUDA_RUNTIME_INCLUDE_DIR OR NOT OPENVC_CUDA_STD_INCLUDE_DIR)
    message(STATUS "CuTe: nothing is compared with its definitions (no cuda_runtime.h or no "
                   "cuda/std; install the CUDA toolkit or point CUDA_PATH at it)")
  else()
    message(STATUS "CuTe: ${OPENVC_CUTE_INCLUDE_DIR}")
    set(${result}
        "${OPENVC_CUTE_INCLUDE_DIR}" "${OPENVC_CUDA_RUNTIME_INCLUDE_DIR}"
        "${OPENVC_CUDA_STD_INCLUDE_DIR}"
        PARENT_SCOPE)
  endif()
endfunction()
