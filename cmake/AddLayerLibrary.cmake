# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# openvc_add_layer(<layer> [DIRECTORY <folder under src>] [USES <layer>...] [LIBRARIES <target>...])
#
# Makes the target openvc_<layer> from all .cpp files of the folder: a static library, or an
# interface library while the layer is headers only. USES names the layers below, which users of
# this one see too; LIBRARIES are third-party targets that stay inside.
function(openvc_add_layer layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DIRECTORY" "USES;LIBRARIES")
  if(NOT arg_DIRECTORY)
    set(arg_DIRECTORY ${layer})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${arg_DIRECTORY}/*.cpp")
  list(TRANSFORM arg_USES PREPEND openvc_)
  set(target openvc_${layer})
  if(sources)
    add_library(${target} STATIC ${sources})
    # Highway includes a source once for each instruction set: such sources stay out of unity builds.
    foreach(source IN LISTS sources)
      file(STRINGS "${source}" highway REGEX "^#include [<\"]hwy/" LIMIT_COUNT 1)
      if(highway)
        set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endforeach()
    target_link_libraries(
      ${target}
      PUBLIC openvc_headers ${arg_USES}
      PRIVATE openvc_warnings ${arg_LIBRARIES})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE openvc_headers ${arg_USES} ${arg_LIBRARIES})
  endif()
endfunction()
