# Configures, builds and runs the consumer from nothing (cmake -P; see CMakeLists.txt for the variables).
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(consumer ${CMAKE_CURRENT_LIST_DIR}/consumer)
if(WAY STREQUAL "installed")
  step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
  # What users must not depend on is not there for them.
  file(GLOB_RECURSE internal ${WORK_DIR}/prefix/include/*/internal/*)
  if(internal)
    message(FATAL_ERROR "internal headers were installed: ${internal}")
  endif()
  set(where -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_BUILD_TYPE=Release)
else()
  # All of it is compiled again, which takes half the time without the optimiser.
  set(where -DEVENKEEL_SOURCES=${SOURCE_DIR} -DCMAKE_BUILD_TYPE=Debug)
endif()

set(with -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
         -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DEVENKEEL_WERROR=${WERROR} ${where})
if(WAY STREQUAL "installed")
  step(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/part -B ${WORK_DIR}/part ${with})
  step(${CMAKE_COMMAND} --build ${WORK_DIR}/part)
endif()
step(${CMAKE_COMMAND} -S ${consumer} -B ${WORK_DIR}/build ${with})
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step(${WORK_DIR}/build/consumer)
