# Strict warnings for troupe's own targets; errors when TROUPE_WERROR is on (CI).
function(troupe_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  if(TROUPE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
