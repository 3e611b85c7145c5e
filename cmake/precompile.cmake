# What makes a build from nothing fast. The preset `edit` has none of it: there, files show that they include what they
# use, and a change recompiles less.
option(TROUPE_PRECOMPILE "Precompile the headers that most files of a target include" OFF)
option(TROUPE_UNITY "Compile several files of a target at a time" OFF)

# Code of precompiled headers and of the files that use them is generated alike.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(TROUPE_PRECOMPILE)
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

# Without garbage collections, which take a fifth of GCC's time on files of this size, where there is memory for it.
if(TROUPE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR needed_mib "${cores} * 3072")
  if(memory_mib GREATER needed_mib)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=2097152>
                        $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=100>)
  endif()
endif()

# Precompiles headers for one target.
function(troupe_precompile target)
  if(NOT TROUPE_PRECOMPILE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess) # without it ccache cannot tell what a file includes
  endif()
endfunction()

# Precompiles the runtime's header, with what its users in this tree include beside it, once for all of them:
# troupe_precompile_runtime(NAME [HEADERS HEADER...] [LIBRARIES TARGET...] [OPTIONS OPTION...]).
function(troupe_precompile_runtime name)
  if(NOT TROUPE_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 also "" "" "HEADERS;LIBRARIES;OPTIONS")
  set(empty ${PROJECT_BINARY_DIR}/precompiled/empty.cpp)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${name} OBJECT ${empty})
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/include/runtime)
  set(libraries nlohmann_json::nlohmann_json)
  set(headers <troupe/runtime/runtime.hpp> <nlohmann/json.hpp>)
  find_package(CLI11 QUIET)
  if(TARGET CLI11::CLI11)
    list(APPEND libraries CLI11::CLI11)
    list(APPEND headers <CLI/CLI.hpp>)
  endif()
  target_link_libraries(${name} PRIVATE troupe_actors ${libraries} ${also_LIBRARIES})
  target_compile_options(${name} PRIVATE ${also_OPTIONS})
  troupe_precompile(${name} ${headers} ${also_HEADERS})
endfunction()

# Uses the headers that troupe_precompile_runtime(NAME) has precompiled, for targets with the same compile options.
function(troupe_reuse_precompiled name)
  if(NOT TARGET ${name})
    return()
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM ${name})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
  endforeach()
endfunction()

# For targets whose files include the runtime's header.
function(troupe_use_precompiled)
  troupe_reuse_precompiled(troupe_precompiled ${ARGN})
endfunction()

# Files of a target that use the same templates are compiled several at a time: these are instantiated once. Names in
# their unnamed namespaces must differ, therefore.
function(troupe_unity target)
  if(TROUPE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()
