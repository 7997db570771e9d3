# The functions that make targets. Every CMakeLists.txt of the tree uses them.
include(GNUInstallDirs)

set(EVENKEEL_WARNINGS -Wall -Wextra -Wshadow -Wconversion)

function(evenkeel_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${EVENKEEL_WARNINGS}> $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${EVENKEEL_WERROR}>>:-Werror>)
  if(EVENKEEL_HAS_CUDA)
    evenkeel_cuda_options(${target})
  endif()
endfunction()

# Precompiles the headers of JSON, the command line or GoogleTest, which take half the compile time of a source that
# includes them. Sources still include what they use: clang-tidy compiles without precompiled headers.
function(evenkeel_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${target} ${ARGN})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

# Compiles several sources at a time, so that their headers are read once. No two sources of a target may then share a
# file-local name; for a test whose sources share one, pass APART.
function(evenkeel_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${EVENKEEL_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  # g++ takes the included sources for headers and warns about types with members from an anonymous namespace.
  if(EVENKEEL_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Saves compile time for code whose run time does not matter.
function(evenkeel_optimise_little target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# evenkeel_library(NAME [WITHOUT_HEADERS] [EXPORT SET] SOURCES ... [PUBLIC ...] [PRIVATE ...]): the library of one folder,
# evenkeel::NAME. WITHOUT_HEADERS: a second library of a folder, whose first library installs the headers. A library
# with its own EXPORT set is linked only by name, never through evenkeel::evenkeel.
# Header-only PRIVATE libraries are needed to build it, but not to link an installed copy.
function(evenkeel_library name)
  cmake_parse_arguments(arg "WITHOUT_HEADERS" "EXPORT" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target evenkeel_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(evenkeel::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  evenkeel_compile_together(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM arg_PRIVATE REPLACE "^(fmt::fmt-header-only|nlohmann_json::nlohmann_json)$" "$<BUILD_INTERFACE:\\1>")
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  evenkeel_options(${target})
  if(NOT arg_EXPORT)
    set(arg_EXPORT evenkeelTargets)
    set_property(GLOBAL APPEND PROPERTY EVENKEEL_LIBRARIES ${name})
  endif()
  if(EVENKEEL_INSTALL)
    install(TARGETS ${target} EXPORT ${arg_EXPORT})
    if(NOT arg_WITHOUT_HEADERS)
      install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/evenkeel/${name}
              FILES_MATCHING PATTERN "*.h" PATTERN internal EXCLUDE)
    endif()
  endif()
endfunction()

# evenkeel_test(NAME [APART] [OPTIMISED] SOURCES ... LINK ... [LABELS ...]): a GoogleTest program, one ctest entry. Test
# sources are optimised little; OPTIMISED is for those that compute much. APART: the sources share file-local names.
# Labels choose what the sanitizers run: `concurrent` under ThreadSanitizer, `parsing` under ASan and UBSan. The
# target tests_<label> builds exactly the programs of a label.
function(evenkeel_test name)
  cmake_parse_arguments(arg "APART;OPTIMISED" "" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE EVENKEEL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  evenkeel_options(${name})
  if(NOT arg_APART)
    evenkeel_compile_together(${name})
  endif()
  if(NOT arg_OPTIMISED)
    evenkeel_optimise_little(${name})  # precompiled headers can only be reused with equal options
    if(NOT "gpu" IN_LIST arg_LABELS)
      evenkeel_precompile(${name} REUSE_FROM evenkeel_test_headers)
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${arg_LABELS}")
  foreach(label ${arg_LABELS})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# evenkeel_mpi_test(NAME SOURCES ... LINK ... RANKS P ...): a GoogleTest program of ranks on MPI, run alone,
# and under mpirun once for each P.
function(evenkeel_mpi_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;RANKS" ${ARGN})
  evenkeel_test(${name} SOURCES ${arg_SOURCES} LINK ${arg_LINK})
  foreach(ranks ${arg_RANKS})
    add_test(NAME ${name}_${ranks} COMMAND ${PROJECT_SOURCE_DIR}/tools/mpirun.sh -n ${ranks} $<TARGET_FILE:${name}> --gtest_brief=1)
    set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 300 LABELS mpi PROCESSORS ${ranks})
  endforeach()
endfunction()

# evenkeel_gpu_test(NAME SOURCES ... LINK ... [LABELS ...]): as evenkeel_test(), with CUDA sources. Without a GPU it
# skips and says so. tools/gpu.sh runs the tests with the label `gpu`, also under compute-sanitizer.
function(evenkeel_gpu_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;LABELS" ${ARGN})
  evenkeel_test(${name} SOURCES ${arg_SOURCES} LINK ${arg_LINK} CUDA::cudart_static LABELS gpu ${arg_LABELS})
  evenkeel_cuda_chips(${name} ${EVENKEEL_CUDA_HOPPER} ${EVENKEEL_CUDA_GENERIC})
endfunction()

# evenkeel_benchmark(NAME SOURCES ... LINK ...): a Google Benchmark program, with or without its own main. `make bench`
# runs each whose name ends in _benchmark.
function(evenkeel_benchmark name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} benchmark::benchmark_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  evenkeel_options(${name})
endfunction()
