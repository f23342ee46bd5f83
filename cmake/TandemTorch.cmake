# SPDX-License-Identifier: Apache-2.0
# LibTorch: the PyPI wheel, or any LibTorch 2.11 that TANDEM_TORCH_DIR points to, through own imported
# targets. find_package(Torch) of the CUDA 13 wheel fails without CMake 3.30's CUDA20 dialect.
set(TANDEM_TORCH_DIR "" CACHE PATH "Folder that holds LibTorch's include/ and lib/")
if(NOT TANDEM_TORCH_DIR)
  # scripts/setup.sh leaves the wheel here.
  file(GLOB _candidates "$ENV{HOME}/.cache/tandem/torch-2.11.0/lib/python3*/site-packages/torch")
  list(GET _candidates 0 _first)
  set(TANDEM_TORCH_DIR "${_first}" CACHE PATH "" FORCE)
endif()
if(NOT EXISTS ${TANDEM_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in '${TANDEM_TORCH_DIR}': run scripts/setup.sh, or pass "
    "-DTANDEM_TORCH_DIR=<folder with include/ and lib/>, or -DTANDEM_TORCH=OFF for the torch-free half")
endif()

set(_torch_include ${TANDEM_TORCH_DIR}/include)
foreach(lib IN ITEMS c10 torch_cpu)
  add_library(torch_wheel::${lib} SHARED IMPORTED)
  # -idirafter: the wheel brings protobuf 3.13 headers, which must come after Debian's 3.21 in /usr/include.
  set_target_properties(torch_wheel::${lib} PROPERTIES
    IMPORTED_LOCATION ${TANDEM_TORCH_DIR}/lib/lib${lib}.so
    INTERFACE_COMPILE_OPTIONS
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${_torch_include} -idirafter ${_torch_include}/torch/csrc/api/include>")
endforeach()
set_target_properties(torch_wheel::torch_cpu PROPERTIES INTERFACE_LINK_LIBRARIES torch_wheel::c10)

# What every torch-facing target depends on.
add_library(tandem_torch INTERFACE)
target_link_libraries(tandem_torch INTERFACE torch_wheel::torch_cpu)
# LibTorch's headers are not warning-free.
target_compile_options(tandem_torch INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-parameter -Wno-sign-compare -Wno-deprecated-declarations>)
# The wheel's CUDA libraries lie beside it; RPATH (not RUNPATH) also serves libraries of libraries.
target_link_options(tandem_torch INTERFACE -Wl,--disable-new-dtags)
