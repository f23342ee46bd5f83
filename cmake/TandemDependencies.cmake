# SPDX-License-Identifier: Apache-2.0
# Debian's packages (scripts/setup.sh installs them).
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # module mode on purpose: Debian ships no protobuf-config.cmake
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)  # gRPC brings it; jobspec uses SHA-256 for digests
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(xxhash::xxhash UNKNOWN IMPORTED)
set_target_properties(xxhash::xxhash PROPERTIES
  IMPORTED_LOCATION ${XXHASH_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${XXHASH_INCLUDE_DIR})
find_path(MICROHTTPD_INCLUDE_DIR microhttpd.h REQUIRED)
find_library(MICROHTTPD_LIBRARY microhttpd REQUIRED)
add_library(microhttpd::microhttpd UNKNOWN IMPORTED)
set_target_properties(microhttpd::microhttpd PROPERTIES
  IMPORTED_LOCATION ${MICROHTTPD_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${MICROHTTPD_INCLUDE_DIR})
if(TANDEM_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()
