# Installs the build tree and uses the installation.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(prefix ${WORK_DIR}/prefix)
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
# Internal headers must not be installed.
file(GLOB_RECURSE internal ${prefix}/include/*/internal/*)
if(internal)
  message(FATAL_ERROR "internal headers were installed: ${internal}")
endif()
use_installed(${prefix})
if(HAS_CUDA)
  build(${CMAKE_CURRENT_LIST_DIR}/gpu gpu -DCMAKE_PREFIX_PATH=${prefix})
  step(${WORK_DIR}/gpu/gpu)
endif()
