# SPDX-License-Identifier: Apache-2.0
# tandem_library(NAME SOURCES a.cc ... DEPS b ...)    a static library; DEPS are exactly what design allows
# tandem_binary(NAME SOURCES ... DEPS ... [SAYS_BUILD])   in build/<preset>/bin
#   SAYS_BUILD   it says the build's name (platform/build_info.h), so every commit links it again
# tandem_test(NAME SOURCES ... DEPS ... [TIMEOUT s] [COST c] [LABELS l ...])   one per folder, one ctest entry
#   COST c   those that take long cost more, and start first
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# ThreadSanitizer does not see the locks of a shared Abseil; it sees these.
function(tandem_visible_locks name)
  if(TANDEM_TSAN)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/tsan/visible_mutex.cc)
    target_link_libraries(${name} PRIVATE absl::synchronization absl::time)
  endif()
endfunction()

function(tandem_binary name)
  cmake_parse_arguments(ARG "SAYS_BUILD" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  if(ARG_SAYS_BUILD)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:tandem_build_info>)
  endif()
  tandem_visible_locks(${name})
endfunction()

# What is tested is optimised; the test around it is little or not (TANDEM_TEST_OPTIMIZATION), and so compiles in larger batches.
function(tandem_compile_as_test name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:${TANDEM_TEST_OPTIMIZATION}>)
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 24)
endfunction()

function(tandem_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;COST" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)  # the longest without one of its own takes 45 s alone on two cores
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} tandem_build_info_of_tests GTest::gmock GTest::gtest_main)
  tandem_visible_locks(${name})
  tandem_compile_as_test(${name})
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
endfunction()

# tandem_messages(<target> FILE): the messages of FILE.proto of this folder, which other folders do not see.
# #include "FOLDER/FILE.pb.h".
function(tandem_messages target file)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(gen ${CMAKE_CURRENT_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${gen})
  set(sources ${gen}/${folder}/${file}.pb.cc ${gen}/${folder}/${file}.pb.h)
  add_custom_command(OUTPUT ${sources}
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR} --cpp_out=${gen} ${CMAKE_CURRENT_SOURCE_DIR}/${file}.proto
    DEPENDS ${file}.proto VERBATIM)
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} SYSTEM PUBLIC ${gen})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf)
endfunction()
