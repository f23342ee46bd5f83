// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// Which node, value, unit and state of the undivided outline each one of a stage is: its number there, by the
// number that it has in the stage. A unit's parts have the same numbers in both.
struct Origin {
  std::vector<NodeId> nodes;
  std::vector<ValueId> values;
  std::vector<UnitId> units;
  std::vector<StateId> states;
};

// A part of a model that some ranks hold.
struct Stage {
  Outline outline;
  Origin origin;
};

// A job of one stage.
Stage OnlyStage(Outline outline);

// Divides a model into stages: `chunk_of` has the number of a chunk for each node, ascending from 0, and
// chunk c is on stage c mod num_stages. A stage has its nodes in the outline's order, and what they touch;
// units and states that no node touches are the first stage's. A value that another stage reads is sent
// there, and its gradient back. The batch is loaded where it is read.
//
// InvalidArgument, in one line, if the outline cannot be divided so: a unit or state belongs to one stage,
// one other stage at most reads a value and has a gradient for it, and what the host reads stays where it is
// made.
absl::StatusOr<std::vector<Stage>> DivideIntoStages(const Outline& undivided, absl::Span<const int> chunk_of,
                                                    int num_stages);

// Whether the outline is one of several stages'.
inline bool IsDivided(const Outline& outline) { return !outline.received.empty() || !outline.sent.empty(); }

// The options of a stage, from those of the undivided outline.
BuildOptions OptionsOf(const BuildOptions& undivided, const Origin& origin);

}  // namespace tandem::schedules
