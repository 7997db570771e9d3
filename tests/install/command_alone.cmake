# Installs from a build tree in which only the command and its libraries were built, and uses the installation. That
# tree is a partial copy of the current one: the install scripts, and the files that Ninja lists as the command's
# inputs.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(tree ${WORK_DIR}/tree)
cmake_path(RELATIVE_PATH COMMAND BASE_DIRECTORY ${BUILD_DIR} OUTPUT_VARIABLE command)
execute_process(COMMAND ${MAKE_PROGRAM} -C ${BUILD_DIR} -t inputs ${command}
                OUTPUT_VARIABLE made COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+\\.a\n" made "${made}")
foreach(file ${command} ${made})
  string(STRIP "${file}" file)
  cmake_path(IS_ABSOLUTE file elsewhere)
  if(NOT elsewhere)
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY ${tree}/${folder})
    file(CREATE_LINK ${BUILD_DIR}/${file} ${tree}/${file} COPY_ON_ERROR)
  endif()
endforeach()

file(GLOB_RECURSE scripts RELATIVE ${BUILD_DIR} ${BUILD_DIR}/cmake_install.cmake ${BUILD_DIR}/CMakeFiles/Export/*.cmake
     ${BUILD_DIR}/evenkeelConfig*.cmake)
list(FILTER scripts EXCLUDE REGEX "^tests/install/.*/")
foreach(script ${scripts})
  file(READ ${BUILD_DIR}/${script} text)
  string(REPLACE "${BUILD_DIR}/" "${tree}/" text "${text}")
  file(WRITE ${tree}/${script} "${text}")
endforeach()

set(prefix ${WORK_DIR}/prefix)
step(${CMAKE_COMMAND} --install ${tree} --prefix ${prefix})
file(GLOB entries RELATIVE ${prefix} ${prefix}/*)
if(NOT "${entries}" STREQUAL "bin;include;lib;share")
  message(FATAL_ERROR "a prefix has bin, include, lib and share, and this one ${entries}")
endif()
step(${prefix}/bin/evenkeel --version)
use_installed(${prefix})

# Parts for NVIDIA GPUs were not built, and CMake must say so to a project that requests them.
if(HAS_CUDA)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/gpu -B ${WORK_DIR}/gpu -G ${GENERATOR}
                          -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix}
                  RESULT_VARIABLE failed ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(NOT failed OR NOT said MATCHES "parts for NVIDIA GPUs had not been built")
    message(FATAL_ERROR "evenkeel::cuda is not there, and cmake said: ${said}")
  endif()
endif()
