# Defines TROUPE_HAS_CUDA and, where CUDA is built in, the targets CUDA::cudart_static and troupe_nccl_headers.
# NCCL is a header at build time only: the library is opened at run time.
set(TROUPE_HAS_CUDA OFF)
if(NOT TROUPE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit 12.4 QUIET)
  find_path(TROUPE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDAToolkit_FOUND AND TROUPE_NCCL_INCLUDE_DIR)
    set(TROUPE_HAS_CUDA ON)
    add_library(troupe_nccl_headers INTERFACE)
    target_include_directories(troupe_nccl_headers SYSTEM INTERFACE ${TROUPE_NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
    message(STATUS "CUDA ${CUDAToolkit_VERSION} and nccl.h found: building the CUDA and NCCL parts")
  elseif(TROUPE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TROUPE_CUDA is ON, but the CUDA toolkit (12.4 or newer) or nccl.h was not found: "
                        "install both, or name the toolkit with CUDAToolkit_ROOT and the header's folder with "
                        "TROUPE_NCCL_INCLUDE_DIR")
  else()
    message(STATUS "CUDA toolkit 12.4+ or nccl.h not found: building without the CUDA and NCCL parts")
  endif()
endif()
