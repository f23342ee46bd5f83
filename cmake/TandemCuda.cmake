# SPDX-License-Identifier: Apache-2.0
# CUDA, for the parts that run on GPUs. Kernels are compiled by calling nvcc, without CMake's CUDA language,
# which wants a whole toolkit: the PyPI wheels that scripts/setup.sh --cuda installs are enough.
set(TANDEM_CUDA AUTO CACHE STRING "Build what runs on GPUs: AUTO (where nvcc is), ON, OFF")
set_property(CACHE TANDEM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TANDEM_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities that kernels are compiled for")
set(TANDEM_HAS_CUDA OFF)
if(NOT TANDEM_TORCH OR TANDEM_CUDA STREQUAL OFF)
  return()
endif()

set(_wheels ${TANDEM_TORCH_DIR}/../nvidia)
set(_missing "")
# The first of version 13: an older toolkit may stand before it.
set(_others "")
if(NOT TANDEM_NVCC)
  find_program(_on_path nvcc NO_CACHE)
  foreach(_candidate IN ITEMS ${_on_path} /usr/local/cuda/bin/nvcc ${_wheels}/cu13/bin/nvcc)
    if(NOT TANDEM_NVCC AND EXISTS ${_candidate})
      execute_process(COMMAND ${_candidate} --version OUTPUT_VARIABLE _version)
      if(_version MATCHES "release 13\\.")
        set(TANDEM_NVCC ${_candidate} CACHE FILEPATH "Compiler of the CUDA kernels" FORCE)
      else()
        list(APPEND _others ${_candidate})
      endif()
    endif()
  endforeach()
endif()
if(TANDEM_NVCC)
  get_filename_component(_nvcc ${TANDEM_NVCC} REALPATH)
  get_filename_component(_toolkit ${_nvcc}/../.. ABSOLUTE)
  # nv/target: of the wheel that is most easily forgotten; what g++ reads of nccl.h needs it.
  find_path(TANDEM_CUDA_INCLUDE_DIR nv/target
    HINTS ${_toolkit}/include ${_toolkit}/targets/x86_64-linux/include ${_wheels}/cu13/include NO_DEFAULT_PATH)
elseif(_others)
  list(REMOVE_DUPLICATES _others)
  list(JOIN _others ", " _others)
  list(APPEND _missing "nvcc 13 (another version: ${_others})")
else()
  list(APPEND _missing "nvcc 13")
endif()
if(NOT TANDEM_CUDA_INCLUDE_DIR)
  list(APPEND _missing "the CUDA runtime's headers")
endif()
find_library(TANDEM_CUDART NAMES libcudart.so.13 HINTS ${_wheels}/cu13/lib ${_toolkit}/lib64)
find_path(TANDEM_NCCL_INCLUDE_DIR nccl.h HINTS ${_wheels}/nccl/include)
find_library(TANDEM_NCCL NAMES libnccl.so.2 HINTS ${_wheels}/nccl/lib)
find_library(TANDEM_CUBLASLT NAMES libcublasLt.so.13 HINTS ${_wheels}/cu13/lib ${_toolkit}/lib64)
find_path(TANDEM_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${_wheels}/cudnn/include)
find_library(TANDEM_NVRTC NAMES libnvrtc.so.13 HINTS ${_wheels}/cu13/lib ${_toolkit}/lib64)
find_library(TANDEM_CUDNN NAMES libcudnn.so.9 HINTS ${_wheels}/cudnn/lib)
# Headers alone, of a wheel of their own (scripts/setup.sh --cuda).
find_path(TANDEM_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${TANDEM_TORCH_DIR}/../include)
# Not any CUTLASS of the system's: the release counts.
find_path(TANDEM_CUTLASS_INCLUDE_DIR cutlass/cutlass.h
  HINTS ${TANDEM_TORCH_DIR}/../cutlass_library/source/include NO_DEFAULT_PATH)
if(NOT TANDEM_CUDART)
  list(APPEND _missing "libcudart.so.13")
endif()
if(NOT TANDEM_NCCL OR NOT TANDEM_NCCL_INCLUDE_DIR)
  list(APPEND _missing "NCCL")
else()
  file(STRINGS ${TANDEM_NCCL_INCLUDE_DIR}/nccl.h _nccl REGEX "define NCCL_VERSION_CODE")
  string(REGEX MATCH "[0-9]+$" _nccl "${_nccl}")
  if(_nccl LESS 22800)
    list(APPEND _missing "NCCL 2.28 or later (${TANDEM_NCCL_INCLUDE_DIR}/nccl.h is of ${_nccl})")
  endif()
endif()
foreach(_library IN ITEMS cublasLt nvrtc)
  string(TOUPPER ${_library} _name)
  if(NOT TANDEM_${_name})
    list(APPEND _missing "lib${_library}.so.13")
  endif()
endforeach()
if(NOT TANDEM_CUDNN OR NOT TANDEM_CUDNN_INCLUDE_DIR)
  list(APPEND _missing "cuDNN 9")
endif()
if(NOT TANDEM_CUDNN_FRONTEND_INCLUDE_DIR)
  list(APPEND _missing "the headers of nvidia-cudnn-frontend")
endif()
if(NOT TANDEM_CUTLASS_INCLUDE_DIR)
  list(APPEND _missing "the headers of nvidia-cutlass 4.2")
endif()
if(NOT EXISTS ${TANDEM_TORCH_DIR}/lib/libtorch_cuda.so)
  list(APPEND _missing "a LibTorch with CUDA (${TANDEM_TORCH_DIR} has none)")
endif()
if(_missing)
  list(JOIN _missing ", " _text)
  if(TANDEM_CUDA STREQUAL ON)
    message(FATAL_ERROR "TANDEM_CUDA=ON, and not found: ${_text}. Run scripts/setup.sh --cuda, install the "
      "CUDA 13 toolkit, or configure with -DTANDEM_CUDA=OFF")
  endif()
  message(STATUS "Without CUDA: not found: ${_text}")
  return()
endif()
set(TANDEM_HAS_CUDA ON)
message(STATUS "With CUDA: ${TANDEM_NVCC}")

foreach(lib IN ITEMS c10_cuda torch_cuda)
  add_library(torch_wheel::${lib} SHARED IMPORTED)
  set_target_properties(torch_wheel::${lib} PROPERTIES IMPORTED_LOCATION ${TANDEM_TORCH_DIR}/lib/lib${lib}.so)
endforeach()

# What everything that is compiled against CUDA depends on. LibTorch's kernels register themselves when their
# library is loaded, so it stays linked though no symbol of it is used.
add_library(tandem_cuda INTERFACE)
target_include_directories(tandem_cuda SYSTEM INTERFACE ${TANDEM_CUDA_INCLUDE_DIR})
target_link_libraries(tandem_cuda INTERFACE tandem_torch torch_wheel::c10_cuda ${TANDEM_CUDART}
  "-Wl,--push-state,--no-as-needed" torch_wheel::torch_cuda "-Wl,--pop-state")

add_library(tandem_nccl INTERFACE)
target_include_directories(tandem_nccl SYSTEM INTERFACE ${TANDEM_NCCL_INCLUDE_DIR})
target_link_libraries(tandem_nccl INTERFACE tandem_cuda ${TANDEM_NCCL})

add_library(tandem_cublaslt INTERFACE)
target_link_libraries(tandem_cublaslt INTERFACE tandem_cuda ${TANDEM_CUBLASLT})

# Without the headers' JSON library: graphs are not written to files. They have engines that compile with NVRTC.
add_library(tandem_cudnn INTERFACE)
target_compile_definitions(tandem_cudnn INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
target_include_directories(tandem_cudnn SYSTEM INTERFACE ${TANDEM_CUDNN_FRONTEND_INCLUDE_DIR}
  ${TANDEM_CUDNN_INCLUDE_DIR})
target_link_libraries(tandem_cudnn INTERFACE tandem_cuda ${TANDEM_CUDNN} ${TANDEM_NVRTC})

# Of kernels that are CUTLASS's: its headers' warnings are not ours, and they need these two.
set(TANDEM_CUTLASS_FLAGS -isystem ${TANDEM_CUTLASS_INCLUDE_DIR} --expt-relaxed-constexpr -DNDEBUG)

set(_gencode "")
foreach(architecture IN LISTS TANDEM_CUDA_ARCHITECTURES)
  list(APPEND _gencode -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
# Later GPUs compile the newest one's intermediate code.
list(GET TANDEM_CUDA_ARCHITECTURES -1 _newest)
list(APPEND _gencode -gencode arch=compute_${_newest},code=compute_${_newest})
set(TANDEM_NVCC_FLAGS -std=c++20 -O3 --Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC)

# tandem_cuda_kernels(TARGET [ARCHITECTURE a] [FLAGS f ...] SOURCES a.cu ...)
#   adds kernels to a target; raw pointers, no torch
#   ARCHITECTURE a   for GPUs of that one alone (90a: also what later ones do not have), whatever
#                    TANDEM_CUDA_ARCHITECTURES says
function(tandem_cuda_kernels target)
  cmake_parse_arguments(ARG "" "ARCHITECTURE" "SOURCES;FLAGS" ${ARGN})
  set(gencode ${_gencode})
  if(ARG_ARCHITECTURE)
    set(gencode -gencode arch=compute_${ARG_ARCHITECTURE},code=sm_${ARG_ARCHITECTURE})
  endif()
  # To ccache an object of nvcc's is that of a folder, unless it hears otherwise: one cache serves all clones.
  set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(launcher)
    list(PREPEND launcher ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1)
  endif()
  foreach(source IN LISTS ARG_SOURCES)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${launcher} ${TANDEM_NVCC} ${TANDEM_NVCC_FLAGS} ${gencode} ${ARG_FLAGS} -ccbin ${CMAKE_CXX_COMPILER}
        -I${CMAKE_SOURCE_DIR} -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source}.o" VERBATIM)
    target_sources(${target} PRIVATE ${object})
  endforeach()
endfunction()
