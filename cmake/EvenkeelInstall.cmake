# Makes find_package(evenkeel) work for an installed copy. The libraries install themselves (EvenkeelTargets.cmake).
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/evenkeel)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/evenkeelConfig.cmake.in
  ${PROJECT_BINARY_DIR}/evenkeelConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/evenkeelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/evenkeelConfig.cmake ${PROJECT_BINARY_DIR}/evenkeelConfigVersion.cmake
        DESTINATION ${package_dir})
install(EXPORT evenkeelTargets NAMESPACE evenkeel:: DESTINATION ${package_dir})
if(EVENKEEL_HAS_CUDA)
  install(EXPORT evenkeelCudaTargets NAMESPACE evenkeel:: DESTINATION ${package_dir})
endif()
if(EVENKEEL_HAS_MPI)
  install(EXPORT evenkeelMpiTargets NAMESPACE evenkeel:: DESTINATION ${package_dir})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
