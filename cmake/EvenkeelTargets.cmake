# One target a folder: evenkeel_library(NAME SOURCES ... [PUBLIC ...] [PRIVATE ...]) makes evenkeel::NAME.
include(GNUInstallDirs)

set(EVENKEEL_WARNINGS -Wall -Wextra -Wshadow -Wconversion)
option(EVENKEEL_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})

function(evenkeel_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE ${EVENKEEL_WARNINGS} $<$<BOOL:${EVENKEEL_WERROR}>:-Werror>)
endfunction()

function(evenkeel_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target evenkeel_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(evenkeel::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  evenkeel_options(${target})
  set_property(GLOBAL APPEND PROPERTY EVENKEEL_LIBRARIES ${target})
endfunction()

# evenkeel_test(NAME SOURCES ... LINK ...): a GoogleTest program, one ctest entry.
function(evenkeel_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE EVENKEEL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  evenkeel_options(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()
