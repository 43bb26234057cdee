# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

set(OPENVC_KERNEL_SET all CACHE STRING
    "Attention kernels to compile: all, or the fewest that serve every call (ci)")
set_property(CACHE OPENVC_KERNEL_SET PROPERTY STRINGS all ci)
if(NOT OPENVC_KERNEL_SET MATCHES "^(all|ci)$")
  message(FATAL_ERROR "OPENVC_KERNEL_SET is '${OPENVC_KERNEL_SET}'; it takes all or ci")
endif()

# openvc_add_kernel_library(<name> DIRECTORY <folder under src> ARCHITECTURES <arch>... USES <layer>...
#                           [TEST_ARCHITECTURES <arch>...] [CI_INSTANTIATIONS <name>...])
#
# Makes the static CUDA library openvc_<name> from all .cu and .cpp files of the folder. It is
# compiled for those of its ARCHITECTURES that OPENVC_CUDA_ARCHITECTURES asks for, SASS only: an
# 'a' architecture has no forward compatible PTX. No such architecture, no library. One library per
# architecture family is what keeps '#if __CUDA_ARCH__' out of the kernels.
#
# With the tests that need a GPU it is compiled for those of its TEST_ARCHITECTURES as well: GPUs that
# can run it, and that the API has better kernels for. OPENVC_IMAGES of the target has the others.
#
# Configurations of a kernel are files of the subfolder instantiations/; with OPENVC_KERNEL_SET=ci only
# those of CI_INSTANTIATIONS are compiled.
function(openvc_add_kernel_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DIRECTORY"
                        "ARCHITECTURES;TEST_ARCHITECTURES;USES;CI_INSTANTIATIONS")
  set(images)
  foreach(architecture IN LISTS arg_ARCHITECTURES)
    if(architecture IN_LIST OPENVC_CUDA_ARCHITECTURES)
      list(APPEND images "sm_${architecture}")
    endif()
  endforeach()
  set(architectures ${images})
  if(OPENVC_TESTS AND OPENVC_GPU_TESTS)
    foreach(architecture IN LISTS arg_TEST_ARCHITECTURES)
      if(architecture IN_LIST OPENVC_CUDA_ARCHITECTURES)
        list(APPEND architectures "sm_${architecture}")
      endif()
    endforeach()
  endif()
  list(TRANSFORM architectures REPLACE "sm_(.+)" "\\1-real")
  if(NOT architectures)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${arg_DIRECTORY}/*.cu" "${arg_DIRECTORY}/*.cpp")
  if(OPENVC_KERNEL_SET STREQUAL "ci" AND arg_CI_INSTANTIATIONS)
    list(TRANSFORM arg_CI_INSTANTIATIONS
         REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_DIRECTORY}/instantiations/\\1.cu"
         OUTPUT_VARIABLE kept)
    list(FILTER sources EXCLUDE REGEX "/instantiations/")
    list(APPEND sources ${kept})
  endif()
  list(TRANSFORM arg_USES PREPEND openvc_)
  set(target openvc_${name})
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}"
                                             OPENVC_IMAGES "${images}" UNITY_BUILD OFF)
  target_compile_definitions(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:OPENVC_KERNEL_SET=${OPENVC_KERNEL_SET}>)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--generate-line-info>)
  target_link_libraries(
    ${target}
    PUBLIC ${arg_USES} CUDA::cudart_static
    PRIVATE openvc_warnings)
  set_property(GLOBAL APPEND PROPERTY OPENVC_KERNEL_LIBRARIES ${name})
  message(STATUS "CUDA kernels: ${target} for ${architectures}")
endfunction()
