# The installed package: cmake --install, then find_package(troupe) and the target troupe::troupe.
# Nothing in it may name the source or the build folder, and it may be moved as a whole.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

foreach(part device completion collectives actors runtime troupe)
  set_target_properties(troupe_${part} PROPERTIES EXPORT_NAME ${part})
  install(TARGETS troupe_${part} EXPORT troupeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
install(EXPORT troupeTargets NAMESPACE troupe:: DESTINATION ${package_dir})

# Every installed header can be included without CUDA, NCCL and Gloo: of their folders only the doors go along.
foreach(layer device completion collectives actors runtime)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe
          FILES_MATCHING PATTERN "*.hpp"
          PATTERN cuda EXCLUDE PATTERN nccl EXCLUDE PATTERN gloo EXCLUDE PATTERN program EXCLUDE
          PATTERN testing EXCLUDE PATTERN troupe.hpp EXCLUDE PATTERN world_core.hpp EXCLUDE
          PATTERN runtime_parts.hpp EXCLUDE)
endforeach()
foreach(door device/cuda/cuda_driver.hpp collectives/gloo/gloo_backend.hpp collectives/gloo/gloo_options.hpp
             collectives/nccl/nccl_backend.hpp
             collectives/nccl/nccl_environment.hpp collectives/nccl/nccl_library.hpp collectives/nccl/nccl_options.hpp
             collectives/nccl/nccl_profiler.hpp)
  cmake_path(GET door PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${door} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/runtime/troupe.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/testing DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe
        FILES_MATCHING PATTERN "*.hpp")

if(TARGET troupe)
  # A CAF outside the system's folders is found by the installed program where it was found by the built one.
  set_target_properties(troupe PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS troupe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/troupeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/troupeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/troupeConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/troupeConfig.cmake
              ${PROJECT_BINARY_DIR}/package/troupeConfigVersion.cmake ${PROJECT_SOURCE_DIR}/cmake/find_caf.cmake
              ${PROJECT_SOURCE_DIR}/cmake/find_hwloc.cmake ${PROJECT_SOURCE_DIR}/cmake/find_gloo.cmake
        DESTINATION ${package_dir})
