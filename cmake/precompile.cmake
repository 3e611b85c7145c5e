# Headers that most files of a target include are compiled once (TROUPE_PRECOMPILE, on in the presets of CI, which build
# from nothing). Off otherwise: files then show that they include what they use, and a change recompiles less.
option(TROUPE_PRECOMPILE "Precompile the headers that most files of a target include" OFF)

function(troupe_precompile target)
  if(NOT TROUPE_PRECOMPILE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess) # without it ccache cannot tell what a file includes
  endif()
endfunction()

# Files of a target that all use the same header-only libraries are compiled several at a time (TROUPE_UNITY, on in the
# same presets): what such a library defines in each of them is generated once. Names in their unnamed namespaces must
# differ, therefore.
option(TROUPE_UNITY "Compile several files of a target at a time" OFF)

# Files that a test compiles once more, with bugs planted in them (device/planted_bug.hpp): always objects of their own.
function(troupe_plantable)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(files ${ARGN})
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY TROUPE_PLANTABLE ${files})
endfunction()

function(troupe_unity target)
  if(TROUPE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()
