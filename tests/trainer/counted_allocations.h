// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::trainer {

// Counts the allocations of the thread that constructed it, until its destruction. A thread may have only one
// at a time.
class CountedAllocations {
 public:
  CountedAllocations();
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  int64_t count() const;
};

}  // namespace tandem::trainer
