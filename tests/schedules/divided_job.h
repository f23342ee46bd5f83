// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/build/schedule.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// A model in stages, and the programs of each.
struct DividedJob {
  Outline undivided;
  BuildOptions options;  // of the undivided outline
  std::vector<Stage> stages;
  std::vector<StagePrograms> programs;

  // 1F1B, within default budgets; chunk c is on stage c mod num_stages (0: each has a stage of its own).
  DividedJob(Outline outline, const std::vector<int>& chunk_of, const BuildOptions& options,
             int num_stages = 0);

  // Builds the programs of one stage anew.
  void Build(int stage, const PassList& train);

  // What the check of all stages says; empty: nothing.
  std::string Check() const;
  // The same of rule 4 together.
  std::string CheckTogether() const;
};

// A chunk for each node: layers dealt evenly in order, what is before them in the first chunk, what is behind
// them in the last one.
std::vector<int> ByLayers(const Outline& outline, int num_chunks);

// A dense decoder of so many layers a chunk, under 1F1B.
DividedJob DenseStages(int num_stages, int layers_of_each, int num_microbatches,
                       const std::string& strategy = "zero3", int ranks = 2, int num_chunks = 1);

// Embedding and layer 0; layer 1 and head.
std::vector<Stage> TwoStages();

}  // namespace tandem::schedules
