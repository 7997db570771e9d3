# NCCL, for one rank per GPU: the header to build with, and the library's path at build time. Both come from the
# environment's EVENKEEL_NCCL_ROOT, the CUDA toolkit, the Python package nvidia-nccl-cu13, or `tools/setup.sh nccl`.
set(EVENKEEL_NCCL AUTO CACHE STRING "Ranks on NCCL: AUTO (where nccl.h is found), ON or OFF")
set_property(CACHE EVENKEEL_NCCL PROPERTY STRINGS AUTO ON OFF)

set(EVENKEEL_HAS_NCCL OFF)
if(EVENKEEL_HAS_CUDA AND NOT EVENKEEL_NCCL STREQUAL "OFF")
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(list(u.find_spec('nvidia.nccl').submodule_search_locations)[0])"
    OUTPUT_VARIABLE nccl_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(GLOB nccl_set_up "${PROJECT_SOURCE_DIR}/build/nccl/lib/python3*/site-packages/nvidia/nccl")
  set(nccl_hints "$ENV{EVENKEEL_NCCL_ROOT}" "${nccl_package}" "${nccl_set_up}" "${CUDAToolkit_LIBRARY_ROOT}")
  find_path(EVENKEEL_NCCL_INCLUDE nccl.h HINTS ${nccl_hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_file(EVENKEEL_NCCL_BUILT_WITH libnccl.so.2 HINTS ${nccl_hints} PATH_SUFFIXES lib lib64)
  mark_as_advanced(EVENKEEL_NCCL_INCLUDE EVENKEEL_NCCL_BUILT_WITH)
  if(EVENKEEL_NCCL_INCLUDE)
    set(EVENKEEL_HAS_NCCL ON)
    if(NOT EVENKEEL_NCCL_BUILT_WITH)
      set(EVENKEEL_NCCL_BUILT_WITH libnccl.so.2)
    endif()
  elseif(EVENKEEL_NCCL STREQUAL "AUTO")
    message(STATUS "nccl.h was not found: ranks on NCCL are left out (`tools/setup.sh nccl` brings it)")
  else()
    message(FATAL_ERROR "EVENKEEL_NCCL is ON and nccl.h was not found; `tools/setup.sh nccl` brings it")
  endif()
endif()
