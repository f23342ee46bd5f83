#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What a program takes of the arena. The replay follows the executor's rule, call by call, so the peak is
// exact: at the issue of an instruction it allocates, in this order, the values that it writes, the value
// gradients that it writes and does not add to, and its scratch, each as large as its bound; the scratch
// is free again once the instruction is issued; Release frees the value or gradient.

// Bytes as asked for, by what they are.
struct MemoryUse {
  int64_t activations = 0;  // values
  int64_t gradients = 0;    // of values
  int64_t scratch = 0;
  int64_t total() const { return activations + gradients + scratch; }
  bool operator==(const MemoryUse&) const = default;
};

struct MemoryPoint {
  int64_t in_use = 0;  // bytes of the arena in use at the most while the instruction is issued, rounded sizes
  int64_t extent = 0;  // end of the highest block in use so far: what the arena must hold up to here
  MemoryUse use;       // as asked for, beside the persistent blocks
};

struct MemoryCurve {
  std::vector<MemoryPoint> points;  // per instruction
  int64_t persistent = 0;           // bytes of the persistent blocks, rounded sizes
  int64_t peak_bytes = 0;           // what the arena must hold, persistent blocks and fragmentation included
  int peak_instruction = -1;        // the first at which the most is in use; -1: the program is empty
  int64_t peak_in_use = 0;          // there, persistent blocks included, rounded sizes
  MemoryUse peak;                   // there
};

// persistent: sizes of the blocks that are allocated before the program, in their order. Requires a program
// that the checker accepts.
MemoryCurve ReplayMemory(const Outline& outline, const Program& program,
                         absl::Span<const int64_t> persistent);

}  // namespace tandem::schedules_v1
