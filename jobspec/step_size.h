// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "jobspec/model_types.h"
#include "parallel/from_spec.h"
#include "parallel/topology.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// How large a job's step program is, before it is built. Of a resolved spec that was accepted, or of one
// whose layers, ranks and batch sizes were.

// Nodes of the model, about: two a layer, seven where layers may be sparse.
inline int64_t NodesOf(const v1::JobSpec& spec) {
  return NumLayersOf(spec.model()) * (spec.model().has_moe() ? 7 : 2);
}

// Sequences that all ranks work on at the same time; 0 where the ranks of the job cannot be laid out.
inline int64_t SequencesOfARound(const v1::JobSpec& spec) {
  return spec.training().micro_batch_size() * parallel::DataRanks(parallel::GridOf(spec.parallelism()));
}

// Forwards of nodes of a rank in a step, about.
inline int64_t NodePasses(const v1::JobSpec& spec) {
  const int64_t round = SequencesOfARound(spec);
  return round == 0 ? 0 : NodesOf(spec) * (spec.training().global_batch_size() / round);
}

// More than these take longer to simulate than a submission can wait.
inline constexpr int64_t kMostSimulated = 4096;

}  // namespace tandem::jobspec
