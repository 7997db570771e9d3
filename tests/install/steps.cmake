# Shared by the tests of this folder (run with cmake -P; CMakeLists.txt documents the variables).
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# build(SOURCE FOLDER [cmake's options ...]): configures and builds a project into ${WORK_DIR}/FOLDER.
function(build source folder)
  configure(${source} ${folder} ${ARGN})
  step(${CMAKE_COMMAND} --build ${WORK_DIR}/${folder})
endfunction()

function(configure source folder)
  step(${CMAKE_COMMAND} -S ${source} -B ${WORK_DIR}/${folder} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
       -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DEVENKEEL_WERROR=${WERROR} ${ARGN})
endfunction()

# Builds and runs the examples, which are user code, against the installed copy.
function(use_installed prefix)
  set(where -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release)
  build(${CMAKE_CURRENT_LIST_DIR}/part part ${where})
  build(${CMAKE_CURRENT_LIST_DIR}/consumer consumer ${where})
  step(${WORK_DIR}/consumer/consumer)
  build(${SOURCE_DIR}/examples examples ${where})
  step(${WORK_DIR}/examples/example_placement ${SOURCE_DIR}/data/tiny-moe/routing_step1563.npz
       ${WORK_DIR}/placement.json)
  if(HAS_LAYER)
    step(${WORK_DIR}/examples/example_layer)
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
