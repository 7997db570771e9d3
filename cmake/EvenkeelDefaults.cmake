# Defaults of a build. None of them applies to a project that embeds evenkeel.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT is_multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(EVENKEEL_CCACHE ccache)
  if(EVENKEEL_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${EVENKEEL_CCACHE}")
  endif()
endif()
