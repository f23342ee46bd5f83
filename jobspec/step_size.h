// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "jobspec/model_types.h"
#include "parallel/from_spec.h"
#include "parallel/topology.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Estimates how large a job's step program is, before it is built. Requires a resolved spec whose layers,
// ranks and batch sizes are valid.

// Estimates how many nodes the model has: two for each layer, or seven if layers may be sparse.
inline int64_t NodesOf(const v1::JobSpec& spec) {
  return NumLayersOf(spec.model()) * (spec.model().has_moe() ? 7 : 2);
}

// The number of sequences that all ranks work on at the same time; 0 if the job's ranks cannot be laid out.
inline int64_t SequencesOfARound(const v1::JobSpec& spec) {
  return spec.training().micro_batch_size() * parallel::DataRanks(parallel::GridOf(spec.parallelism()));
}

// Estimates how many forwards of nodes a rank runs in a step.
inline int64_t NodePasses(const v1::JobSpec& spec) {
  const int64_t round = SequencesOfARound(spec);
  return round == 0 ? 0 : NodesOf(spec) * (spec.training().global_batch_size() / round);
}

// Programs with more passes take too long to be simulated while a client waits for its submission.
inline constexpr int64_t kMostSimulated = 4096;

}  // namespace tandem::jobspec
