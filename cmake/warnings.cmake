# Strict warnings for troupe's own targets; errors when TROUPE_WERROR is on (CI).
function(troupe_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  if(TROUPE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # In instrumented code GCC guesses wrongly, in the standard library's constructors, too.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # With -O3 GCC 12 guesses wrongly in the standard library's strings (GCC's bug 105651). Other builds have these warnings.
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-Wno-maybe-uninitialized;-Wno-restrict>")
  endif()
  if(TROUPE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
