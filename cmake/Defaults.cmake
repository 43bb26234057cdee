# SPDX-License-Identifier: BSD-3-Clause
# What every target of the project has in common.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# Static layers end up in the Python extension, which is a shared object.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# A shared openvc exports its public headers alone: they mark their declarations.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# An import must work on machines without a GPU driver: the runtime is linked statically, nothing
# links libcuda.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

get_property(openvc_is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT openvc_is_multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
