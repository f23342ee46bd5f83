// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/oracle/hashes.h"

namespace tandem::oracle {

// Bytes that remember what was written to them: a hash, their offset in what was written, and how long that
// was.
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
  // What is in [begin, end), appended to `runs`.
  void Read(int64_t begin, int64_t end, std::vector<Run>& runs) const;

 private:
  // It starts at begin and ends at the start of the next one.
  struct Segment {
    int64_t begin = 0;
    Hash hash = 0;
    int64_t offset = 0;
    int64_t total = 0;
  };

  // The segment that holds a byte.
  size_t Find(int64_t address) const;
  // Makes a segment start at `address`; its index.
  size_t SplitAt(int64_t address);

  std::vector<Segment> segments_;
  int64_t size_;
};

}  // namespace tandem::oracle
