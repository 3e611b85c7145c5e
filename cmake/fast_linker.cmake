# LLVM's linker, where it is installed: it links a test program in one second, GNU's in several. Sanitized and optimised
# builds use the compiler's own linker.
option(TROUPE_LLD "Link with lld where it is found" OFF)
find_program(TROUPE_LLD_PATH ld.lld)
mark_as_advanced(TROUPE_LLD_PATH)
if(TROUPE_LLD AND TROUPE_LLD_PATH)
  add_link_options(-fuse-ld=lld)
endif()
