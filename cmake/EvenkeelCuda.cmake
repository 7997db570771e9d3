# The optional parts for NVIDIA GPUs; nothing else needs them. If they are built, EVENKEEL_HAS_CUDA is ON and
# evenkeel_cuda_library() makes the library of a folder's cuda/.
set(cuda_default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(cuda_default OFF)  # a language is not enabled in somebody else's project unasked
endif()
set(EVENKEEL_CUDA ${cuda_default} CACHE STRING "The parts for NVIDIA GPUs: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE EVENKEEL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(EVENKEEL_CUDA_LEAST_VERSION 12.5)  # knows sm_90a, C++20, and cudaGetDriverEntryPointByVersion

# Machine code for Hopper with all its instructions. Machine code for sm_80, which also runs on sm_86 to sm_89, with
# its PTX, which the driver compiles for every later chip.
set(EVENKEEL_CUDA_HOPPER -gencode=arch=compute_90a,code=sm_90a)
set(EVENKEEL_CUDA_GENERIC -gencode=arch=compute_80,code=[compute_80,sm_80])

set(EVENKEEL_HAS_CUDA OFF)
if(EVENKEEL_CUDA STREQUAL "ON" AND NOT EVENKEEL_HAS_LAYER)
  message(FATAL_ERROR "EVENKEEL_CUDA is ON, and the parts for NVIDIA GPUs need the layer, which is left out here")
endif()
if(NOT EVENKEEL_CUDA STREQUAL "OFF" AND EVENKEEL_HAS_LAYER)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # each source says its own
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL EVENKEEL_CUDA_LEAST_VERSION)
      set(EVENKEEL_HAS_CUDA ON)
    endif()
  endif()
  if(EVENKEEL_HAS_CUDA)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: the parts for NVIDIA GPUs are built")
  elseif(EVENKEEL_CUDA STREQUAL "AUTO")
    message(STATUS "nvcc ${EVENKEEL_CUDA_LEAST_VERSION} or newer was not found: the parts for NVIDIA GPUs are left out")
  else()
    message(FATAL_ERROR "EVENKEEL_CUDA is ON and nvcc ${EVENKEEL_CUDA_LEAST_VERSION} or newer was not found")
  endif()
endif()

# Options of every CUDA source. ptxas only prints a note when it serializes wgmma (C7510), so a compiler launcher reads
# its output and fails.
function(evenkeel_cuda_options target)
  set(host_warnings ${EVENKEEL_WARNINGS} -Wno-pedantic)
  if(EVENKEEL_WERROR)
    list(APPEND host_warnings -Werror)
    set(werror --Werror=all-warnings)
  endif()
  list(JOIN host_warnings "," host_warnings)
  set(options --expt-relaxed-constexpr -lineinfo -DNDEBUG ${werror} -Xcompiler=${host_warnings})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${options}>")
  set(launcher ${PROJECT_SOURCE_DIR}/cmake/refuse_serialized_wgmma.sh)
  if(EVENKEEL_CCACHE)
    list(APPEND launcher ${EVENKEEL_CCACHE})
  endif()
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
    CUDA_ARCHITECTURES OFF CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()

# Chooses the chips that a target's CUDA sources are compiled for: both by default.
function(evenkeel_cuda_chips target)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${ARGN}>")
endfunction()

# evenkeel_cuda_library(NAME SOURCES ... [HOPPER ...] [PUBLIC ...] [PRIVATE ...]): as evenkeel_library(), for a folder
# cuda/. SOURCES (.cpp and .cu) are compiled for both kinds of chip, HOPPER sources only for sm_90a. The folder above
# installs its headers.
function(evenkeel_cuda_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;HOPPER;PUBLIC;PRIVATE" ${ARGN})
  set(target evenkeel_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(evenkeel::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  list(TRANSFORM arg_PRIVATE REPLACE "^(fmt::fmt-header-only)$" "$<BUILD_INTERFACE:\\1>")
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} CUDA::cudart_static)
  evenkeel_options(${target})
  evenkeel_cuda_chips(${target} ${EVENKEEL_CUDA_HOPPER} ${EVENKEEL_CUDA_GENERIC})
  if(arg_HOPPER)
    add_library(${target}_hopper OBJECT ${arg_HOPPER})
    target_link_libraries(${target}_hopper PRIVATE ${arg_PUBLIC} ${arg_PRIVATE} CUDA::cudart_static)
    evenkeel_options(${target}_hopper)
    evenkeel_cuda_chips(${target}_hopper ${EVENKEEL_CUDA_HOPPER})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_hopper>)
  endif()
  set_property(GLOBAL APPEND PROPERTY EVENKEEL_CUDA_LIBRARIES ${name})
  if(EVENKEEL_INSTALL)
    # `make build` does not build these: they are installed only if another target built them.
    install(TARGETS ${target} EXPORT evenkeelCudaTargets OPTIONAL)
  endif()
endfunction()
