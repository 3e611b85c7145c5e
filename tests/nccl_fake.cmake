# Fake NCCL libraries for nccl_backend_test.cpp: one too old, one new enough but incomplete.
# Usage, in tests/CMakeLists.txt:  include(nccl_fake.cmake)  then  troupe_use_fake_nccl(<test programs>...)
function(troupe_fake_nccl name version)
  add_library(${name} MODULE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/collectives/backend/nccl/fake_nccl.cpp)
  target_compile_definitions(${name} PRIVATE TROUPE_FAKE_NCCL_VERSION=${version})
endfunction()

function(troupe_use_fake_nccl)
  if(NOT TARGET troupe_fake_nccl_old)
    troupe_fake_nccl(troupe_fake_nccl_old 22005)
    troupe_fake_nccl(troupe_fake_nccl_incomplete 22809)
  endif()
  foreach(program ${ARGN}) # which open them
    add_dependencies(${program} troupe_fake_nccl_old troupe_fake_nccl_incomplete)
    target_compile_definitions(${program} PRIVATE
      TROUPE_TEST_HAS_NCCL=$<BOOL:${TROUPE_HAS_CUDA}>
      TROUPE_FAKE_NCCL_OLD="$<TARGET_FILE:troupe_fake_nccl_old>"
      TROUPE_FAKE_NCCL_INCOMPLETE="$<TARGET_FILE:troupe_fake_nccl_incomplete>")
  endforeach()
endfunction()
