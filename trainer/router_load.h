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

// Ranks of the job that share a microbatch, and ranks that share experts. A rank computes at most so many
// rows of a microbatch of its EP group at a time: more take further passes.
struct RankSharing {
  std::vector<std::vector<int>> losses;   // parallel::SharingRanks
  std::vector<std::vector<int>> experts;  // EP groups, in group order; empty: no ranks share experts
  int64_t rows_at_a_time = 0;
};
RankSharing SharingOf(const plan::JobPlan& plan);

// The sum over all microbatches of `value(in)`, added in the order of the global microbatch number: `in` are
// a rank's doubles of its round. Of microbatches that several ranks share, theirs are added first.
template <typename Value>
double SumOfMicrobatches(const std::vector<std::vector<int>>& losses, int64_t microbatches,
                         const Value& value) {
  const auto data_ranks = static_cast<int64_t>(losses.size());
  double sum = 0;
  for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    const std::vector<int>& ranks = losses[microbatch % data_ranks];
    double of_all = value(ranks.front(), microbatch / data_ranks);
    for (size_t i = 1; i < ranks.size(); ++i) {
      of_all += value(ranks[i], microbatch / data_ranks);
    }
    sum += of_all;
  }
  return sum;
}

// How many doubles `loads` are on the wire, and they themselves: of each layer what all ranks have alike in
// number.
int64_t NumDoubles(const std::vector<RouterLoad>& loads);
double* Put(const std::vector<RouterLoad>& loads, double* out);

// Adds up what the ranks have put: tokens as whole numbers, losses in the order of the global microbatch
// number. of_ranks: where each rank's doubles begin. shape: any rank's loads. The loads of experts go to the
// report's norms, and to its scalars the few numbers of all layers that every report carries:
// "moe_balance_loss" and "moe_z_loss" (means over the sparse layers), "moe_largest_load" (the most tokens of
// an expert, in means of its layer), "moe_idle" (experts without tokens), "moe_dropped" and
// "moe_further_passes". Nothing without sparse layers.
void Fold(const std::vector<RouterLoad>& shape, const RankSharing& sharing,
          std::vector<const double*> of_ranks, v1::StepReport& report);

}  // namespace tandem::trainer
