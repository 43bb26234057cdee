# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# Sanitizers reach every target, fetched libraries included: a half-instrumented program reports
# errors that are not there.
if(OPENVC_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${OPENVC_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${OPENVC_SANITIZE})
endif()
