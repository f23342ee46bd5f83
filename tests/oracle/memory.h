// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/oracle/hashes.h"

namespace tandem::oracle {

// Memory that remembers for each byte what was written to it: a hash, the byte's offset in what was written,
// and the size of what was written.
class Memory {
 public:
  struct Run {
    int64_t length = 0;
    Hash hash = 0;
    int64_t offset = 0;  // of its first byte in what was written
    int64_t total = 0;   // bytes that were written
  };

  Memory(int64_t size, int rank);

  void Write(int64_t begin, int64_t end, Hash hash);
  // Appends the content of [begin, end) to `runs`.
  void Read(int64_t begin, int64_t end, std::vector<Run>& runs) const;

 private:
  // A segment starts at begin and ends where the next one starts.
  struct Segment {
    int64_t begin = 0;
    Hash hash = 0;
    int64_t offset = 0;
    int64_t total = 0;
  };

  // The segment that holds a byte.
  size_t Find(int64_t address) const;
  // Makes a segment start at `address`, and returns its index.
  size_t SplitAt(int64_t address);

  std::vector<Segment> segments_;
  int64_t size_;
};

}  // namespace tandem::oracle
