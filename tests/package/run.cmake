# SPDX-License-Identifier: BSD-3-Clause
# Installs the build tree BUILD into a scratch folder under it, builds the consumer with the compiler
# CXX against what is installed, and runs it. Usage: cmake -DBUILD=... -DCXX=... -P run.cmake
set(prefix "${BUILD}/package-test/installed")
set(consumer "${BUILD}/package-test/consumer")
file(REMOVE_RECURSE "${BUILD}/package-test")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${consumer}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}")
run("${CMAKE_COMMAND}" --build "${consumer}")
run("${consumer}/consumer")
