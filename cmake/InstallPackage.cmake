# SPDX-License-Identifier: BSD-3-Clause
# Installs the library with a CMake package, so that a project says find_package(openvc) and links
# openvc::openvc; with the program. A wheel holds the same inside the Python package.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

get_property(fetched GLOBAL PROPERTY OPENVC_FETCHED)
if(fetched AND NOT BUILD_SHARED_LIBS)
  message(STATUS "Install: no CMake package, because a static openvc needs ${fetched} installed too")
  return()
endif()

set(package_directory "${CMAKE_INSTALL_LIBDIR}/cmake/openvc")
get_property(kernel_libraries GLOBAL PROPERTY OPENVC_KERNEL_LIBRARIES)
set(exported openvc openvc_headers openvc_numeric_flags)
if(NOT BUILD_SHARED_LIBS)
  list(APPEND exported openvc_warnings openvc_numerics openvc_schedule openvc_cpu)
  if(OPENVC_WITH_CUDA)
    list(TRANSFORM kernel_libraries PREPEND openvc_)
    list(APPEND exported openvc_cuda_host openvc_cuda_attention ${kernel_libraries})
  endif()
endif()
install(TARGETS ${exported} EXPORT openvcTargets COMPONENT openvc)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/openvc" "${PROJECT_BINARY_DIR}/generated/openvc"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT openvc FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT openvcTargets NAMESPACE openvc:: DESTINATION "${package_directory}"
        COMPONENT openvc)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/openvcConfig.cmake.in" "${PROJECT_BINARY_DIR}/openvcConfig.cmake"
  INSTALL_DESTINATION "${package_directory}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/openvcConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/openvcConfig.cmake"
              "${PROJECT_BINARY_DIR}/openvcConfigVersion.cmake" DESTINATION "${package_directory}"
        COMPONENT openvc)
if(NOT SKBUILD)  # a wheel has them in its metadata
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT openvc)
endif()
if(TARGET open-vc-attn)
  install(TARGETS open-vc-attn COMPONENT openvc)
endif()
