# MPI, for ranks as processes. EVENKEEL_HAS_MPI is ON if it is found.
set(mpi_default AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(mpi_default OFF)  # not looked for in somebody else's project unasked
endif()
set(EVENKEEL_MPI ${mpi_default} CACHE STRING "Ranks on MPI: AUTO (where an MPI is found), ON or OFF")
set_property(CACHE EVENKEEL_MPI PROPERTY STRINGS AUTO ON OFF)

set(EVENKEEL_HAS_MPI OFF)
if(EVENKEEL_MPI AND EVENKEEL_HAS_LAYER)
  set(MPI_CXX_SKIP_MPICXX ON)  # the C++ bindings were removed from the MPI standard
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(EVENKEEL_HAS_MPI ON)
  elseif(EVENKEEL_MPI STREQUAL "AUTO")
    message(STATUS "No MPI was found: ranks on MPI are left out (`tools/setup.sh build` brings it)")
  else()
    message(FATAL_ERROR "EVENKEEL_MPI is ON and no MPI was found; `tools/setup.sh build` brings it")
  endif()
endif()
