// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/build/schedule.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// A model divided into stages, and the programs of each stage.
struct DividedJob {
  Outline undivided;
  BuildOptions options;  // those of the undivided outline
  std::vector<Stage> stages;
  std::vector<StagePrograms> programs;

  // Builds 1F1B programs within default budgets. Chunk c is on stage c mod num_stages; if num_stages is 0,
  // each chunk has its own stage.
  DividedJob(Outline outline, const std::vector<int>& chunk_of, const BuildOptions& options,
             int num_stages = 0);

  // Builds the programs of one stage again, from these passes.
  void Build(int stage, const PassList& train);

  // The error of CheckStages; empty if there is none.
  std::string Check() const;
  // The error of RunTogether (rule 4 for all stages); empty if there is none.
  std::string CheckTogether() const;
};

// Returns a chunk for each node: layers are distributed evenly in order; what is before the layers is in the
// first chunk, and what is behind them in the last.
std::vector<int> ByLayers(const Outline& outline, int num_chunks);

// A dense decoder under 1F1B, with layers_of_each layers in each chunk.
DividedJob DenseStages(int num_stages, int layers_of_each, int num_microbatches,
                       const std::string& strategy = "zero3", int ranks = 2, int num_chunks = 1);

// Stage 0 has the embedding and layer 0; stage 1 has layer 1 and the head.
std::vector<Stage> TwoStages();

}  // namespace tandem::schedules
