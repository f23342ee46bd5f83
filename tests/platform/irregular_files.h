// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace tandem::platform {

// The kinds of files that are not regular, as errors name them.
inline constexpr const char* kIrregularKinds[] = {"a FIFO", "a socket", "a folder", "a device"};

// Creates a file of that kind at `path`, which must not exist yet. A read of a FIFO or a device would never
// end.
inline void PutIrregularFile(const std::string& kind, const std::string& path) {
  int rc = -1;
  if (kind == "a FIFO") {
    rc = mkfifo(path.c_str(), 0600);
  }
  if (kind == "a socket") {
    rc = mknod(path.c_str(), S_IFSOCK | 0600, 0);
  }
  if (kind == "a folder") {
    rc = mkdir(path.c_str(), 0700);
  }
  if (kind == "a device") {
    rc = symlink("/dev/zero", path.c_str());
  }
  ASSERT_EQ(rc, 0) << kind << " at " << path;
}

}  // namespace tandem::platform
