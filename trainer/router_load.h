// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/v1/report.pb.h"

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

// The decisions of one sparse layer's router for a rank's microbatches of one step (model/decoder_shapes.h).
struct RouterLoad {
  struct Losses {
    double balance = 0;
    double z = 0;
  };

  int layer = 0;
  // By expert, summed over the microbatches; whole numbers, so any order of addition is exact.
  std::vector<double> tokens;
  double dropped = 0;          // the same for dropped choices
  std::vector<Losses> losses;  // by microbatch
  // By microbatch, the tokens for the experts of each rank of the EP group, in the order of its ranks. Empty
  // if no ranks share experts.
  std::vector<std::vector<double>> rows;
};

// The ranks of the job that share a microbatch, and those that share experts. A rank computes at most a fixed
// number of rows of its EP group's microbatch at a time; more rows take further passes.
struct RankSharing {
  std::vector<std::vector<int>> losses;   // parallel::SharingRanks
  std::vector<std::vector<int>> experts;  // the EP groups in order; empty if no ranks share experts
  int64_t rows_at_a_time = 0;
};
RankSharing SharingOf(const plan::JobPlan& plan);

// Adds value(in) over all microbatches, in the order of the global microbatch number; `in` are the doubles of
// a rank for its round. If several ranks share a microbatch, their values are added first.
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

// The number of doubles that `loads` take in an exchange, and the doubles themselves. For each layer, all
// ranks have the same number.
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
