// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/v1/report.pb.h"

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

// Statistics of one sparse layer's router over a rank's microbatches of one step (model/decoder_shapes.h).
struct RouterLoad {
  struct Losses {
    double balance = 0;
    double z = 0;
  };

  int layer = 0;
  // Tokens by expert, summed over the microbatches. They are whole numbers, so the sum does not depend on the
  // order.
  std::vector<double> tokens;
  double dropped = 0;          // number of dropped choices, summed likewise
  std::vector<Losses> losses;  // by microbatch
  // By microbatch, the tokens for the experts of each rank of the EP group, in the order of its ranks. Empty
  // if no ranks share experts.
  std::vector<std::vector<double>> rows;
};

// Which ranks of the job share a microbatch, and which share experts.
struct RankSharing {
  std::vector<std::vector<int>> losses;   // parallel::SharingRanks
  std::vector<std::vector<int>> experts;  // the EP groups in order; empty if no ranks share experts
  // Rows of an EP group's microbatch that a rank computes in one pass; more rows need further passes.
  int64_t rows_at_a_time = 0;
};
RankSharing SharingOf(const plan::JobPlan& plan);

// Adds value(rank, round) over all microbatches, in the order of the global microbatch number. If several
// ranks share a microbatch, their values are added first.
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

// NumDoubles returns the number of doubles into which Put encodes `loads`, the same on all ranks. Put writes
// them to `out` and returns the end of what it wrote.
int64_t NumDoubles(const std::vector<RouterLoad>& loads);
double* Put(const std::vector<RouterLoad>& loads, double* out);

// Adds up the loads of all ranks, with losses in the order of the global microbatch number, and adds the
// result to `report`. `of_ranks` has the doubles that each rank's Put wrote; `shape` is any rank's loads. The
// loads by expert are stored in the report's norms. Every report also gets scalars over all sparse layers, if
// there are any: "moe_balance_loss" and "moe_z_loss" (means over the layers), "moe_largest_load" (the most
// tokens of an expert, divided by the mean of its layer), "moe_idle" (experts without tokens), "moe_dropped"
// and "moe_further_passes".
void Fold(const std::vector<RouterLoad>& shape, const RankSharing& sharing,
          std::vector<const double*> of_ranks, v1::StepReport& report);

}  // namespace tandem::trainer
