# Strict warnings for troupe's own targets, in the builds where they are errors (TROUPE_WERROR: the presets edit, ci and
# clang). Elsewhere they would take time, and with -O2 and sanitizers GCC guesses wrongly in the standard library.
function(troupe_warnings target)
  if(TROUPE_WERROR)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow -Werror)
  endif()
endfunction()
