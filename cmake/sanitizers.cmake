# Sanitizers apply to everything compiled here: mixing instrumented and plain code hides errors.
if(TROUPE_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TROUPE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${TROUPE_SANITIZE})
endif()
