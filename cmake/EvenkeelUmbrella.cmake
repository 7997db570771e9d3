# Two names for several folders: evenkeel::evenkeel is everything that was built, evenkeel::planning what needs
# neither device, BLAS nor threads.
set(EVENKEEL_PLANNING_FOLDERS base routing topology model plan placement balance memory io)
get_property(EVENKEEL_BUILT_FOLDERS GLOBAL PROPERTY EVENKEEL_LIBRARIES)

function(evenkeel_umbrella name)
  set(target evenkeel_umbrella_${name})
  add_library(${target} INTERFACE)
  add_library(evenkeel::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  foreach(folder ${ARGN})
    if(folder IN_LIST EVENKEEL_BUILT_FOLDERS)
      target_link_libraries(${target} INTERFACE evenkeel_${folder})
    endif()
  endforeach()
  if(EVENKEEL_INSTALL)
    install(TARGETS ${target} EXPORT evenkeelTargets)
  endif()
endfunction()

evenkeel_umbrella(planning ${EVENKEEL_PLANNING_FOLDERS})
evenkeel_umbrella(evenkeel ${EVENKEEL_BUILT_FOLDERS})
