# What users link, in a tree of their own as after find_package(troupe): troupe::troupe, which is everything;
# troupe::core for worlds of one process on NCCL and the mock; and troupe::testing for tests with <troupe/testing/...>.
#
# A static build hands the layers' libraries on. A shared one (BUILD_SHARED_LIBS) makes one libtroupe.so of all layers:
# docs/design/0045-packages.md. It has one of everything that there may be only one of in a program, however many
# libraries of that program use troupe.
set(TROUPE_CORE_LAYERS device completion collectives actors runtime)
set(TROUPE_LAYERS ${TROUPE_CORE_LAYERS})
if(NOT TROUPE_CORE_ALONE)
  list(APPEND TROUPE_LAYERS processes backends testing)
endif()
if(BUILD_SHARED_LIBS)
  add_library(troupe_troupe SHARED)
  set_target_properties(troupe_troupe PROPERTIES
    OUTPUT_NAME troupe
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} # 0.2 and 0.3 are two interfaces
    INSTALL_RPATH_USE_LINK_PATH ON) # a CAF or Gloo outside the system's folders is found where it was found now
  target_compile_features(troupe_troupe PUBLIC cxx_std_20)
  target_link_libraries(troupe_troupe PUBLIC Threads::Threads CAF::core)
  foreach(layer ${TROUPE_LAYERS})
    target_link_libraries(troupe_troupe PRIVATE troupe_${layer})
    target_include_directories(troupe_troupe PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include/${layer}>)
    add_library(troupe::${layer} ALIAS troupe_troupe)
  endforeach()
  if(TROUPE_HAS_NVCC) # objects that a library of objects has as sources do not come with it
    target_sources(troupe_troupe PRIVATE $<TARGET_OBJECTS:troupe_one_shot_kernels>)
  endif()

  # Everything of troupe's is seen from outside; CUDA's static runtime, and what templates of others became, is not.
  set(exported ${PROJECT_SOURCE_DIR}/cmake/exported_names.map)
  target_link_options(troupe_troupe PRIVATE LINKER:--version-script=${exported})
  set_target_properties(troupe_troupe PROPERTIES LINK_DEPENDS ${exported})
  if(NOT TROUPE_SANITIZE) # whose libraries the program brings along
    target_link_options(troupe_troupe PRIVATE LINKER:-z,defs)
  endif()
  add_library(troupe_core INTERFACE)
  target_link_libraries(troupe_core INTERFACE troupe_troupe)
else()
  add_library(troupe_core INTERFACE)
  target_link_libraries(troupe_core INTERFACE troupe::runtime)
  add_library(troupe_troupe INTERFACE)
  target_link_libraries(troupe_troupe INTERFACE troupe::runtime)
  if(NOT TROUPE_CORE_ALONE)
    target_link_libraries(troupe_troupe INTERFACE troupe::testing troupe::processes troupe::backends)
  endif()
endif()
add_library(troupe::troupe ALIAS troupe_troupe)
add_library(troupe::core ALIAS troupe_core)
