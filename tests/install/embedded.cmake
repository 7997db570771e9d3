# Embeds the sources in a project that only plans. oneDNN and everything else that only a layer needs is
# hidden. A fake CUDA compiler comes first in PATH, and leaves a mark when it is called.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(mark ${WORK_DIR}/nvcc-was-called)
file(WRITE ${WORK_DIR}/bin/nvcc "#!/bin/sh\ntouch '${mark}'\nexit 1\n")
file(CHMOD ${WORK_DIR}/bin/nvcc PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(ENV{PATH} "${WORK_DIR}/bin:$ENV{PATH}")
set(ENV{CUDACXX} ${WORK_DIR}/bin/nvcc)
unset(ENV{EVENKEEL_HIGHS_ROOT})

# This compiles the sources again, which takes half the time without the optimiser.
set(embedded -DEVENKEEL_SOURCES=${SOURCE_DIR} -DCMAKE_BUILD_TYPE=Debug)
set(hidden)
foreach(package dnnl OpenMP Threads OpenCL CUDAToolkit highs GTest benchmark CLI11 Python nanobind)
  list(APPEND hidden -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()

function(require_no_nvcc)
  if(EXISTS ${mark})
    message(FATAL_ERROR "configuring a project that only plans called nvcc")
  endif()
endfunction()

function(require_only_planning what files)
  foreach(folder device comm exchange compute layer)
    if(files MATCHES "evenkeel_${folder}[./]")
      message(FATAL_ERROR "a project that only plans ${what} ${folder}")
    endif()
  endforeach()
  if(files MATCHES "bin/evenkeel|_test|benchmark")
    message(FATAL_ERROR "a project that only plans ${what} ${CMAKE_MATCH_0}")
  endif()
endfunction()

build(${CMAKE_CURRENT_LIST_DIR}/consumer consumer ${embedded} ${hidden})
step(${WORK_DIR}/consumer/consumer)
require_no_nvcc()
file(GLOB_RECURSE built ${WORK_DIR}/consumer/*.a ${WORK_DIR}/consumer/*.o)
if(NOT "${built}" MATCHES "evenkeel_plan\\.a")
  message(FATAL_ERROR "nothing was built in ${WORK_DIR}/consumer")
endif()
require_only_planning("built" "${built}")

# Linking the omitted layer must report why it was omitted.
function(require_refusal why)
  execute_process(COMMAND ${CMAKE_COMMAND} ${WORK_DIR}/consumer -DLINK=evenkeel::evenkeel ${ARGN} RESULT_VARIABLE failed
                  ERROR_VARIABLE said OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(NOT failed OR NOT said MATCHES "left out, since ${why}")
    message(FATAL_ERROR "a layer that was left out can be linked, or cmake did not say why it cannot: ${said}")
  endif()
endfunction()
require_refusal("these were not found: threads, OpenMP")
require_refusal("EVENKEEL_LAYER is OFF" -DEVENKEEL_LAYER=OFF)

# If oneDNN is found, the layer can be linked. Ninja's list of inputs shows that, even then, only linked parts would be
# built.
if(HAS_LAYER AND GENERATOR STREQUAL "Ninja")
  configure(${CMAKE_CURRENT_LIST_DIR}/consumer with_layer ${embedded})
  require_no_nvcc()
  execute_process(COMMAND ${MAKE_PROGRAM} -C ${WORK_DIR}/with_layer -t inputs all OUTPUT_VARIABLE inputs
                  COMMAND_ERROR_IS_FATAL ANY)
  require_only_planning("would build" "${inputs}")
  step(${CMAKE_COMMAND} ${WORK_DIR}/with_layer -DLINK=evenkeel::evenkeel)
  execute_process(COMMAND ${MAKE_PROGRAM} -C ${WORK_DIR}/with_layer -t inputs all OUTPUT_VARIABLE inputs
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT inputs MATCHES "evenkeel_layer\\.a")
    message(FATAL_ERROR "the layer is linked and would not be built")
  endif()
endif()
