#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedules_v1/block_allocator.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What the recycling of memory orders. The arena is one for all streams and recycled in the host's issue
// order: a block that a Release gave back is handed out again at once, while earlier users of it may still be
// running. Two things make that safe, and the checker proves both:
//
//   * the Release is ordered after every use of what it releases (it counts as a write of it, effects.h)
//   * whoever is handed a block is ordered after the Release of everything that lay there, and after the
//     instructions whose scratch lay there
//
// This class finds the second kind. That a Release is on the stream that wrote first does not give it: the
// next block may be for another stream. It only makes the usual case, where that is the same stream, free.
//
// Replays the allocations by the rule of memory.h. At a seam the arena is empty again, so that nothing is
// carried from one program to the next.
class ArenaOrder {
 public:
  // Both outlive it.
  ArenaOrder(const Outline& outline, const Program& program);

  // Issues instruction i, from 0, each once. The instructions that i must come after because they gave back
  // memory that i is handed: Releases, and passes of nodes whose scratch it was. In no particular order, some
  // twice. Valid until the next call. Requires that values are opened and closed as Lifetimes wants it.
  const std::vector<int>& Issue(int i);

 private:
  void Allocate(int64_t bytes, int64_t& offset);
  void Free(int64_t offset, int64_t bytes, int i);
  int64_t& Offset(ValueId value, int microbatch, bool of_gradient);
  int64_t BytesOf(ValueId value, bool of_gradient) const;

  // Memory that is free, and the instruction that gave it back.
  struct Freed {
    int64_t end = 0;
    int by = -1;
  };

  const Outline& outline_;
  const Program& program_;
  BlockAllocator blocks_;
  std::vector<int64_t> offsets_;    // of what is open
  std::map<int64_t, Freed> freed_;  // by begin, disjoint
  std::vector<int> after_;
};

}  // namespace tandem::schedules_v1
