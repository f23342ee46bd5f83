// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "platform/regular_file.h"

namespace tandem::data {

// Whether all of these bytes of the file are in the machine's memory.
inline bool IsCached(const std::string& path, int64_t begin, int64_t count) {
  const platform::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  fstat(file.get(), &info);
  const auto size = static_cast<size_t>(info.st_size);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) {
    return false;
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool looked = mincore(mapped, size, pages.data()) == 0;
  munmap(mapped, size);
  return looked && std::all_of(pages.begin() + begin / page, pages.begin() + (begin + count - 1) / page + 1,
                               [](unsigned char state) { return (state & 1) != 0; });
}

// Takes the file out of the machine's memory. False: its file system keeps it there.
inline bool DropFromCache(const std::string& path) {
  const platform::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fdatasync(file.get());
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  return !IsCached(path, 0, 1);
}

// Waits for what the disk was asked for, ten seconds at most.
inline bool BecomesCached(const std::string& path, int64_t begin, int64_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!IsCached(path, begin, count)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace tandem::data
