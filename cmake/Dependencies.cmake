# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)
include(FetchContent)

# openvc_find_dependency(<package> <minimum version> TARGET <target> DEBIAN <apt package>
#                        REPOSITORY <url> TAG <pinned tag> [CACHE_OPTIONS <name>=<value>...])
#
# Takes the installed package if there is one. Otherwise fetches the pinned release, when
# OPENVC_FETCH_DEPENDENCIES allows it, or stops and says what to do.
function(openvc_find_dependency package minimum)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TARGET;DEBIAN;REPOSITORY;TAG" "CACHE_OPTIONS")
  if(TARGET ${arg_TARGET})
    return()
  endif()
  find_package(${package} ${minimum} CONFIG QUIET GLOBAL)
  if(TARGET ${arg_TARGET})
    message(STATUS "${package}: installed, ${${package}_DIR}")
    return()
  endif()
  if(NOT OPENVC_FETCH_DEPENDENCIES)
    message(
      FATAL_ERROR
        "${package} ${minimum} or newer is not installed. Ways out:\n"
        "  Debian, Ubuntu: apt-get install ${arg_DEBIAN}\n"
        "  elsewhere: install it and point CMAKE_PREFIX_PATH at it\n"
        "  or configure with -DOPENVC_FETCH_DEPENDENCIES=ON, which downloads ${arg_TAG} from "
        "${arg_REPOSITORY}")
  endif()
  message(STATUS "${package}: not installed, fetching ${arg_TAG} from ${arg_REPOSITORY}")
  foreach(option IN LISTS arg_CACHE_OPTIONS)
    string(REGEX MATCH "^([^=]+)=(.*)$" matched "${option}")
    set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" CACHE INTERNAL "set for ${package}")
  endforeach()
  # A fetched library is part of our binaries, never a shared object of its own, and its warnings
  # are not ours.
  set(BUILD_SHARED_LIBS OFF)
  FetchContent_Declare(
    ${package}
    GIT_REPOSITORY ${arg_REPOSITORY}
    GIT_TAG ${arg_TAG}
    GIT_SHALLOW ON
    SYSTEM)
  FetchContent_MakeAvailable(${package})
  if(NOT TARGET ${arg_TARGET})
    string(REGEX REPLACE "^.*::" "" plain "${arg_TARGET}")
    add_library(${arg_TARGET} ALIAS ${plain})
  endif()
  set_property(GLOBAL APPEND PROPERTY OPENVC_FETCHED ${package})
endfunction()

macro(openvc_find_fmt)
  openvc_find_dependency(
    fmt 9.0
    TARGET fmt::fmt-header-only
    DEBIAN libfmt-dev
    REPOSITORY https://github.com/fmtlib/fmt.git
    TAG 11.0.2)
endmacro()

macro(openvc_find_cli11)
  openvc_find_dependency(
    CLI11 2.1
    TARGET CLI11::CLI11
    DEBIAN libcli11-dev
    REPOSITORY https://github.com/CLIUtils/CLI11.git
    TAG v2.4.2)
endmacro()

macro(openvc_find_json)
  openvc_find_dependency(
    nlohmann_json 3.10
    TARGET nlohmann_json::nlohmann_json
    DEBIAN nlohmann-json3-dev
    REPOSITORY https://github.com/nlohmann/json.git
    TAG v3.11.3)
endmacro()

macro(openvc_find_highway)
  openvc_find_dependency(
    hwy 1.0.3
    TARGET hwy::hwy
    DEBIAN libhwy-dev
    REPOSITORY https://github.com/google/highway.git
    TAG 1.2.0
    CACHE_OPTIONS HWY_ENABLE_TESTS=OFF HWY_ENABLE_EXAMPLES=OFF HWY_ENABLE_CONTRIB=OFF
                  HWY_ENABLE_INSTALL=OFF)
endmacro()

macro(openvc_find_googletest)
  openvc_find_dependency(
    GTest 1.12
    TARGET GTest::gmock
    DEBIAN libgmock-dev
    REPOSITORY https://github.com/google/googletest.git
    TAG v1.15.2
    CACHE_OPTIONS INSTALL_GTEST=OFF)
endmacro()

macro(openvc_find_benchmark)
  openvc_find_dependency(
    benchmark 1.7
    TARGET benchmark::benchmark
    DEBIAN libbenchmark-dev
    REPOSITORY https://github.com/google/benchmark.git
    TAG v1.9.1
    CACHE_OPTIONS BENCHMARK_ENABLE_TESTING=OFF BENCHMARK_ENABLE_INSTALL=OFF)
endmacro()
