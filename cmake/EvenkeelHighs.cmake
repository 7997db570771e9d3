# HiGHS, the optional integer-program solver of placement/internal/program. `tools/setup.sh highs` builds it into
# build/highs, or into the environment's EVENKEEL_HIGHS_ROOT; any other copy that CMake finds will do.
set(EVENKEEL_HIGHS AUTO CACHE STRING "Exact placement by HiGHS: AUTO (where it is found), ON or OFF")
set_property(CACHE EVENKEEL_HIGHS PROPERTY STRINGS AUTO ON OFF)

set(EVENKEEL_HAS_HIGHS OFF)
if(NOT EVENKEEL_HIGHS STREQUAL "OFF")
  find_package(highs 1.11 CONFIG QUIET GLOBAL  # embedded, evenkeel is linked from other folders too
               HINTS "$ENV{EVENKEEL_HIGHS_ROOT}" "${CMAKE_CURRENT_LIST_DIR}/../build/highs")
  if(TARGET highs::highs)
    set(EVENKEEL_HAS_HIGHS ON)
  elseif(EVENKEEL_HIGHS STREQUAL "AUTO")
    message(STATUS "HiGHS was not found: exact placement is left out (tools/setup.sh highs gets it)")
  else()
    message(FATAL_ERROR "EVENKEEL_HIGHS is ON and HiGHS was not found; tools/setup.sh highs gets it")
  endif()
endif()

# A static HiGHS is installed with evenkeel, since users of an installed evenkeel::placement link it. A shared one is
# found again by evenkeelConfig.cmake.
set(EVENKEEL_BUNDLES_HIGHS OFF)
if(EVENKEEL_HAS_HIGHS)
  get_target_property(highs_type highs::highs TYPE)
  if(highs_type STREQUAL "STATIC_LIBRARY")
    set(EVENKEEL_BUNDLES_HIGHS ON)
    if(EVENKEEL_INSTALL)
      include(GNUInstallDirs)
      install(FILES $<TARGET_FILE:highs::highs> DESTINATION ${CMAKE_INSTALL_LIBDIR}/evenkeel)
      cmake_path(GET highs_DIR PARENT_PATH highs_root)  # <prefix>/lib/cmake/highs
      install(FILES "${highs_root}/../../share/doc/highs/LICENSE.txt" DESTINATION ${CMAKE_INSTALL_DOCDIR}
              RENAME LICENSE-HiGHS.txt OPTIONAL)
    endif()
  endif()
endif()
