# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)

# Where things are installed. In a wheel everything lies inside the Python package, so that it finds
# its parts, and they find each other, wherever pip puts it.
if(SKBUILD)
  set(openvc_package open_vc_attn)
  set(CMAKE_INSTALL_BINDIR "${openvc_package}/bin")
  set(CMAKE_INSTALL_LIBDIR "${openvc_package}/lib")
  set(CMAKE_INSTALL_INCLUDEDIR "${openvc_package}/include")
endif()
include(GNUInstallDirs)

# openvc_use_installed_library(<target> <folder>): the installed target, in this folder, finds a
# shared openvc beside it.
function(openvc_use_installed_library target folder)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH to_library "/${folder}" "/${CMAKE_INSTALL_LIBDIR}")
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
  endif()
endfunction()
