#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"
#include "schedules_v1/program_builder.h"

namespace tandem::schedules_v1 {

// One small thing changed in a program.
struct Mutant {
  std::string kind;    // "move reshard"
  std::string change;  // "move 12 (reshard layers.0 mb 0) to 9"
  Program program;
};

// Drops, moves or adds a wait; drops, doubles or moves an Unshard, Reshard, ReduceGradients or Release; moves
// anything a little; swaps neighbours; changes slot, stream, communicator, microbatch, the unit that a slot
// is used for, overwrite or add; renames the slot of a whole lease; repeats a node's pass, with the modes and
// waits of a builder that meant it. The program that it returns may be the same as before, where the change
// means nothing.
Mutant Mutate(const Outline& outline, const Program& program, std::mt19937_64& random);

// The kinds of its mutants.
std::vector<std::string> MutationKinds();

// A step whose builder issues one pass earlier or later, or the microbatches in another order; all passes of
// the builder run after that, so that nothing but the order is changed.
Mutant Reorder(const Outline& outline, const FsdpOptions& options, int num_microbatches,
               std::mt19937_64& random);

// What only shows beside another rank. A collective comes after the next one on its communicator; every wait
// is derived anew, so that the program may well be right alone.
Mutant MoveMeeting(const Outline& outline, const Program& program, std::mt19937_64& random);

// Two collectives of two communicators, one after the other: in the first mutant the later one waits for the
// earlier, in the second they come the other way round and the wait with them.
std::pair<Mutant, Mutant> OpposeMeetings(const Outline& outline, const Program& program,
                                         std::mt19937_64& random);

}  // namespace tandem::schedules_v1
