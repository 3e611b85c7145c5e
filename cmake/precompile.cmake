# What makes a build from nothing fast. The preset `edit` precompiles for tests alone, and no header of troupe: there, files
# show that they include what they use, and a change recompiles less.
set(TROUPE_PRECOMPILE OFF CACHE STRING "Precompile headers: ON, TESTS (those of others that most tests include) or OFF")
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

# Precompiles headers once for all their users in this tree: troupe_precompile(NAME HEADERS HEADER... [LIBRARIES TARGET...]
# [OPTIONS OPTION...]). A header costs each of these files the time to generate what it defines at namespace scope: an
# empty file takes 0.7 s of CPU with the runtime's header, 1.8 s with nlohmann/json as well, and 8.5 s with CLI11.
function(troupe_precompile name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES;OPTIONS")
  set(empty ${PROJECT_BINARY_DIR}/precompiled/empty.cpp)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${name} OBJECT ${empty})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${name} PRIVATE -fpch-preprocess) # without it ccache cannot tell what a file includes
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp") # else ccache never finds it again
  endif()
endfunction()

# Uses the headers that troupe_precompile(NAME) has precompiled, for targets with the same compile options.
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
# their unnamed namespaces must differ, therefore. Each part of a target costs some seconds for what its files have in common:
# troupe_unity(TARGET [MOST]) with the MOST files of a part that leave no small one.
function(troupe_unity target)
  set(most 16)
  if(ARGC GREATER 1)
    set(most ${ARGV1})
  endif()
  if(TROUPE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${most})
  endif()
endfunction()
