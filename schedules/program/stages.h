// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// By number of a node, value, unit or state in its stage: its number in the undivided outline. A unit's parts
// have the same numbers in both.
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

// Replaces each number in the accesses of a node by the one at its index: values[5] for value 5.
void Renumber(const std::vector<ValueId>& values, const std::vector<UnitId>& units,
              const std::vector<StateId>& states, Node& node);

// Makes the whole outline one stage, for jobs that are not divided.
Stage OnlyStage(Outline outline);

// Divides a model into stages. `chunk_of` has the number of a chunk for each node, ascending from 0; chunk c
// is on stage c mod num_stages. A stage has its nodes in the outline's order, and what they touch. Units and
// states that no node touches belong to the first stage. A value that another stage reads is sent there, and
// its gradient back. The batch is loaded on each stage that reads it.
//
// Returns InvalidArgument, in one line, if the outline cannot be divided in this way:
// * The nodes that use a unit or state must be in one stage.
// * A value may be read by at most one stage other than its maker's. Of all other stages, that one and no
//   other must write its gradient.
// * A value that the host reads (ValueKind::kHost) must not be read by another stage.
absl::StatusOr<std::vector<Stage>> DivideIntoStages(const Outline& undivided, absl::Span<const int> chunk_of,
                                                    int num_stages);

// Whether the outline belongs to one of several stages.
inline bool IsDivided(const Outline& outline) { return !outline.received.empty() || !outline.sent.empty(); }

// Derives the options of a stage from those of the undivided outline.
BuildOptions OptionsOf(const BuildOptions& undivided, const Origin& origin);

}  // namespace tandem::schedules
