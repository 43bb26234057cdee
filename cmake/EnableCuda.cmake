# SPDX-License-Identifier: BSD-3-Clause
# Resolves OPENVC_CUDA into OPENVC_WITH_CUDA and says what is left out. Plain commands instead of a
# function, because enable_language works at file scope only.
include_guard(GLOBAL)
include(CheckLanguage)

set(OPENVC_WITH_CUDA OFF)
set(openvc_minimum_cuda 12.8)
if(OPENVC_CUDA STREQUAL "OFF")
  set(openvc_nvcc "OPENVC_CUDA is OFF")
elseif(OPENVC_CUDA MATCHES "^(AUTO|ON)$")
  # CMake's own default is an architecture that current toolkits no longer compile for. Kernel
  # libraries set their own.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(openvc_nvcc "no nvcc on PATH or in CUDACXX")
  else()
    enable_language(CUDA)
    if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      # Debian 12's CMake does not know yet that nvcc speaks C++20.
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(openvc_nvcc "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS openvc_minimum_cuda)
      string(APPEND openvc_nvcc " is older than ${openvc_minimum_cuda}")
    else()
      set(OPENVC_WITH_CUDA ON)
    endif()
  endif()
else()
  message(FATAL_ERROR "OPENVC_CUDA is '${OPENVC_CUDA}'; it takes AUTO, ON or OFF")
endif()

if(OPENVC_WITH_CUDA)
  message(STATUS "CUDA backends: ${openvc_nvcc}, architectures ${OPENVC_CUDA_ARCHITECTURES}")
  find_package(CUDAToolkit REQUIRED)
elseif(OPENVC_CUDA STREQUAL "ON")
  message(FATAL_ERROR "OPENVC_CUDA is ON, but: ${openvc_nvcc}. Ways out: install the CUDA toolkit "
                      "${openvc_minimum_cuda} or newer, or configure with -DOPENVC_CUDA=OFF.")
else()
  message(STATUS "CUDA backends: left out (${openvc_nvcc}). Built are the CPU backend, the command "
                 "line tool and the Python package.")
endif()
