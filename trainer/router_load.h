// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/v1/report.pb.h"

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

// What the router of one sparse layer did with a rank's microbatches of one step (model/decoder_shapes.h).
struct RouterLoad {
  struct Losses {
    double balance = 0;
    double z = 0;
  };

  int layer = 0;
  std::vector<double> tokens;  // by expert, over the microbatches: whole numbers, exact in any order
  double dropped = 0;          // likewise
  std::vector<Losses> losses;  // by microbatch
  // By microbatch: tokens for the experts of each rank of the EP group, in their order. Empty where no ranks
  // share experts.
  std::vector<std::vector<double>> rows;
};

// Ranks that share experts. A rank computes at most so many rows of a microbatch of its EP group at a time:
// more take further passes.
struct ExpertSharing {
  std::vector<std::vector<int>> groups;  // of ranks of the job, in group order; empty: none share
  int64_t rows_at_a_time = 0;
};
ExpertSharing SharingOf(const plan::JobPlan& plan);

// How many doubles `loads` are on the wire, and they themselves: of each layer what all ranks have alike in
// number.
int64_t NumDoubles(const std::vector<RouterLoad>& loads);
double* Put(const std::vector<RouterLoad>& loads, double* out);

// Adds up what the ranks have put: tokens as whole numbers, losses in the order of the global microbatch
// number (round × ranks + rank). gathered: rank r's doubles begin at r * stride. shape: any rank's loads. The
// loads of experts go to the report's norms, and to its scalars the few numbers of all layers that every
// report carries: "moe_balance_loss" and "moe_z_loss" (means over the sparse layers), "moe_largest_load" (the
// most tokens of an expert, in means of its layer), "moe_idle" (experts without tokens), "moe_dropped" and
// "moe_further_passes". Nothing without sparse layers.
void Fold(const std::vector<RouterLoad>& shape, const ExpertSharing& sharing, const double* gathered,
          int ranks, int64_t stride, v1::StepReport& report);

}  // namespace tandem::trainer
