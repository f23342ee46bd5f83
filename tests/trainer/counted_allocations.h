#pragma once

#include <cstdint>

namespace tandem::trainer {

// Counts what the thread that made it allocates while it exists; one at a time on a thread.
class CountedAllocations {
 public:
  CountedAllocations();
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  int64_t count() const;
};

}  // namespace tandem::trainer
