# A layer is one top-level folder, one library and one include root. A layer's include root holds a link to its own
# folder only, so a header of a layer that is not linked cannot be included: the direction holds by construction.
# What ALSO_AT_ROOT names in the layer's folder is included as <troupe/NAME>, too.
#
# troupe::NAME is what others link. In a static build it is the layer's own library. In a shared one the layers are
# objects of one library (cmake/one_library.cmake), and all of these names are that library's.
function(troupe_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;NEEDS;ALSO_AT_ROOT")
  set(root ${PROJECT_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root}/troupe)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${root}/troupe/${name} SYMBOLIC)
  foreach(item ${arg_ALSO_AT_ROOT})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name}/${item} ${root}/troupe/${item} SYMBOLIC)
  endforeach()

  if(BUILD_SHARED_LIBS)
    add_library(troupe_${name} OBJECT ${arg_SOURCES})
    list(TRANSFORM arg_NEEDS REPLACE "^troupe::" "troupe_")
  else()
    add_library(troupe_${name} STATIC ${arg_SOURCES})
    add_library(troupe::${name} ALIAS troupe_${name})
  endif()
  target_compile_features(troupe_${name} PUBLIC cxx_std_20)
  set_target_properties(troupe_${name} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(troupe_${name} PUBLIC $<BUILD_INTERFACE:${root}>)
  target_link_libraries(troupe_${name} PUBLIC ${arg_NEEDS})
  troupe_warnings(troupe_${name})
  # Requests carry the source location of their caller: this removes the build machine's folder from its path.
  target_compile_options(troupe_${name} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
endfunction()

# For a package beside the core, of which a runtime learns through a function with C linkage (runtime/packages.hpp). The
# linker takes its file out of a static library only if it is told the function's name. Further arguments: see troupe_unity().
function(troupe_package name symbol)
  if(NOT BUILD_SHARED_LIBS)
    target_link_options(troupe_${name} INTERFACE LINKER:-u,${symbol})
  endif()
  troupe_unity(troupe_${name} ${ARGN})
  troupe_use_precompiled(troupe_${name})
endfunction()
