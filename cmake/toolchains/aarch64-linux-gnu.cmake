# SPDX-License-Identifier: BSD-3-Clause
# Linux on 64-bit Arm (GB200, GB300, GH200, DGX Spark) with Debian's cross compiler
# g++-aarch64-linux-gnu. tools/cross_build.sh uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CUDA_HOST_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# OPENVC_CROSS_LIBRARIES: the folder that Debian's arm64 packages of our libraries are unpacked to.
# Libraries and headers of this machine are none of the target's.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OPENVC_CROSS_LIBRARIES)
set(CMAKE_FIND_ROOT_PATH "${OPENVC_CROSS_LIBRARIES}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
