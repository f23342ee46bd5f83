# SPDX-License-Identifier: Apache-2.0
# Language, warnings, ccache, the fast linker, where binaries go.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# -O2, not -O3: the hot loops are in LibTorch and in a few files that say so themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers)
# Most of the time goes into headers: 16 files a compilation build in less than half of it (the release
# preset; debug compiles every file alone).
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
if(CMAKE_UNITY_BUILD)
  add_compile_options(-Wno-subobject-linkage)  # it takes every file but the first of a batch for a header
endif()

# g++ collects garbage at each doubling from 128 MiB, which takes 5 % of its time: from 1 GiB it hardly does.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=ggc-min-heapsize=1048576)
endif()

# What is compiled does not depend on the folder of the clone, so that one cache serves all clones.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(TANDEM_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${TANDEM_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_LAUNCHER})
  set(CMAKE_C_COMPILER_LAUNCHER ${TANDEM_LAUNCHER})
endif()

find_program(TANDEM_MOLD mold)
if(TANDEM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

option(TANDEM_ASAN "AddressSanitizer and UBSan" OFF)
option(TANDEM_TSAN "ThreadSanitizer" OFF)
if(TANDEM_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(TANDEM_TSAN)
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()

# platform/build_info.cc has the build: version and commit, as far as git is there.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE TANDEM_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT TANDEM_COMMIT)
  set(TANDEM_COMMIT unknown)
endif()
# Ranks of two builds do not train together, so the name follows every checkout, commit and pull: these change
# HEAD or its log, and then the next build configures first.
foreach(file HEAD logs/HEAD)
  execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --git-path ${file}
    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(path "${path}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  if(EXISTS "${path}" AND NOT IS_DIRECTORY "${path}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  endif()
endforeach()
