# Defines TROUPE_HAS_CUDA and, where CUDA is built in, the targets CUDA::cudart_static and troupe_nccl_headers.
# NCCL is a header at build time only: the library is opened at run time. Kernels of troupe's own need a CUDA compiler, too
# (TROUPE_HAS_NVCC): without one, small collectives go to NCCL like all others.
set(TROUPE_HAS_CUDA OFF)
set(TROUPE_HAS_NVCC OFF)
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

# Sets CMAKE_CUDA_ARCHITECTURES where it is not set. Newer devices compile the code of 90 when they load it.
macro(troupe_choose_cuda_architectures)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    if(TROUPE_CUDA_HERE)
      # Each architecture takes half a minute. Where there is no GPU, one shows that the kernels can be compiled.
      # Not every toolkit has a code for newer devices than 90.
      execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE troupe_devices OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      string(REPLACE "\n" ";" troupe_devices "${troupe_devices}")
      string(REPLACE "." "" troupe_devices "${troupe_devices}")
      list(REMOVE_DUPLICATES troupe_devices)
      if(NOT "${troupe_devices}" MATCHES "^(8[0-9]|90)(;(8[0-9]|90))*$")
        set(troupe_devices 90)
      endif()
      set(CMAKE_CUDA_ARCHITECTURES ${troupe_devices})
    endif()
  endif()
endmacro()

if(TROUPE_HAS_CUDA AND NOT TROUPE_NVCC STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    troupe_choose_cuda_architectures()
    enable_language(CUDA)
    set(TROUPE_HAS_NVCC ON)
    message(STATUS "${CMAKE_CUDA_COMPILER} found: building the kernels for small collectives (${CMAKE_CUDA_ARCHITECTURES})")
  elseif(TROUPE_NVCC STREQUAL "ON")
    message(FATAL_ERROR "TROUPE_NVCC is ON, but no CUDA compiler was found: install nvcc, or name it with CMAKE_CUDA_COMPILER")
  else()
    message(STATUS "nvcc not found: building without the kernels for small collectives, which NCCL runs like all others")
  endif()
endif()
