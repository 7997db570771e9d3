# Targets for several folders: evenkeel::evenkeel is everything built for the CPU, evenkeel::planning the part that needs
# neither device, BLAS nor threads, evenkeel::cuda everything built for NVIDIA GPUs and what that needs.
set(EVENKEEL_PLANNING_FOLDERS base routing topology model plan placement balance cost training_memory serving_memory budget step io report)
get_property(EVENKEEL_BUILT_FOLDERS GLOBAL PROPERTY EVENKEEL_LIBRARIES)
get_property(EVENKEEL_BUILT_CUDA GLOBAL PROPERTY EVENKEEL_CUDA_LIBRARIES)

# evenkeel_umbrella(NAME EXPORT SET FOLDERS ...)
function(evenkeel_umbrella name)
  cmake_parse_arguments(arg "" "EXPORT" "FOLDERS" ${ARGN})
  set(target evenkeel_umbrella_${name})
  add_library(${target} INTERFACE)
  add_library(evenkeel::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  foreach(folder ${arg_FOLDERS})
    if(TARGET evenkeel_${folder})
      target_link_libraries(${target} INTERFACE evenkeel_${folder})
    endif()
  endforeach()
  if(EVENKEEL_INSTALL)
    install(TARGETS ${target} EXPORT ${arg_EXPORT})
  endif()
endfunction()

evenkeel_umbrella(planning EXPORT evenkeelTargets FOLDERS ${EVENKEEL_PLANNING_FOLDERS})
evenkeel_umbrella(evenkeel EXPORT evenkeelTargets FOLDERS ${EVENKEEL_BUILT_FOLDERS})
if(EVENKEEL_HAS_CUDA)
  evenkeel_umbrella(cuda EXPORT evenkeelCudaTargets FOLDERS ${EVENKEEL_BUILT_CUDA})
endif()

# If the layer was left out, linking evenkeel::evenkeel fails with the reason: CMake's error quotes the missing target.
if(NOT EVENKEEL_HAS_LAYER)
  set(why "since these were not found: ${layer_lacks}")
  if(NOT EVENKEEL_LAYER)
    set(why "since EVENKEEL_LAYER is ${EVENKEEL_LAYER}, and evenkeel::planning is the rest")
  endif()
  target_link_libraries(evenkeel_umbrella_evenkeel INTERFACE "evenkeel::layer (left out, ${why})")
endif()
# Everything that was built, for our own tests to link.
set(EVENKEEL_ALL_BUILT $<IF:$<BOOL:${EVENKEEL_HAS_LAYER}>,evenkeel::evenkeel,evenkeel::planning>)
