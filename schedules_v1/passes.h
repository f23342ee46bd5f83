#pragma once

#include <cstdint>
#include <vector>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// The passes that complete a builder's program, one file each, in the order in which they run. Each knows
// only of instructions and the outline, not of the builder, so every schedule gets them all.

// fsdp_pass.cc: Unshard before and Reshard after each use of a unit's parameters, ReduceGradients after the
// last contribution of each microbatch. Uses of a unit with no use of another unit between them share one
// gather. The gathers of the next `prefetch` uses are issued ahead of the one in use; a unit is never
// gathered twice at a time.
void InsertFsdp(const Outline& outline, int prefetch, Program& program);

// streams.cc: stream and communicator of every instruction.
void AssignStreams(const Outline& outline, Program& program);

// releases.cc: Release of every value and value gradient after its last use, on the stream of the
// instruction that wrote it first.
void InsertReleases(const Outline& outline, Program& program);

// gradient_modes.cc: overwrite or add. The first write of a part in a lease, of a value's gradient in a
// microbatch and of a gradient shard in a step overwrites; later ones add.
void ChooseGradientModes(const Outline& outline, Program& program);

// slots.cc: which slot of its size class every gather and every gradient lease gets: the lowest that is
// free. A gradient slot stays taken until the next reduction or the next microbatch is issued, so that a
// reduction overlaps the backward of the next unit.
void AssignSlots(const Outline& outline, const std::vector<int64_t>& unit_parameter_slot_bytes,
                 const std::vector<int64_t>& unit_gradient_slot_bytes, Program& program);

// waits.cc: the waits between streams that the effects and the recycling of memory (arena_order.h) require,
// and none that is already implied.
void InsertWaits(const Outline& outline, Program& program);

}  // namespace tandem::schedules_v1
