# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)
include(GoogleTest)

# openvc_add_unit_test(<folder under tests> [TARGET <name>] [LABEL <label>] [SMALL]
#                      [PROPERTIES <name> <value>...] LIBRARIES <target>...)
#
# One GoogleTest executable per folder, from all its .cpp, .c and .cu files, each of its tests
# registered with ctest. Tests are named <something>_test.cpp; other sources are helpers of the same
# folder. PROPERTIES go to every test. SMALL: they compute little themselves, and are compiled
# without the optimisations that take a quarter of the time.
function(openvc_add_unit_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SMALL" "TARGET;LABEL" "PROPERTIES;LIBRARIES")
  if(NOT arg_LABEL)
    set(arg_LABEL unit)
  endif()
  set(patterns "${folder}/*.cpp" "${folder}/*.c")
  if(OPENVC_WITH_CUDA)
    list(APPEND patterns "${folder}/*.cu")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(arg_TARGET)
    set(target ${arg_TARGET})
  else()
    string(REPLACE "/" "_" target "${folder}_tests")
  endif()
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(
    ${target} PRIVATE OPENVC_REPOSITORY_DIRECTORY="${PROJECT_SOURCE_DIR}"
                      $<$<TARGET_EXISTS:open-vc-attn>:OPENVC_CLI_PATH="$<TARGET_FILE:open-vc-attn>">)
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} openvc_warnings GTest::gmock
                                          GTest::gtest_main)
  # Half of the time that a test takes to compile goes into GoogleTest, unless that is precompiled,
  # which takes as long as two or three tests.
  list(LENGTH sources count)
  if(count GREATER 4)
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:<gmock/gmock.h$<ANGLE-R>>)
    # GCC 12 forgets that precompiled code is the standard library's, and warns about what it inlines.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds
                                             -Wno-stringop-overflow>)
  endif()
  if(arg_SMALL AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  if(OPENVC_WITH_CUDA)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "90a-real")
  endif()
  # PRE_TEST: a test program that cannot start fails in ctest, not in the build.
  gtest_discover_tests(
    ${target}
    TEST_PREFIX "${folder}/"
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${arg_LABEL} TIMEOUT 600 ${arg_PROPERTIES})
endfunction()
