// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::trainer {

// What the router of one sparse layer did with a rank's microbatches of one step (model/router_report.h).
struct RouterLoad {
  struct Losses {
    double balance = 0;
    double z = 0;
  };

  int layer = 0;
  std::vector<double> tokens;  // by expert, over the microbatches: whole numbers, exact in any order
  double dropped = 0;          // likewise
  std::vector<Losses> losses;  // by microbatch
};

// The same of all ranks.
struct ExpertLoad {
  int layer = 0;
  std::vector<int64_t> tokens;  // by expert
  int64_t dropped = 0;
  double balance_loss = 0;  // means over the global microbatches, without coefficients
  double z_loss = 0;

  bool operator==(const ExpertLoad&) const = default;
};

// How many doubles `loads` are on the wire, and they themselves: of each layer what all ranks have alike in
// number.
int64_t NumDoubles(const std::vector<RouterLoad>& loads);
double* Put(const std::vector<RouterLoad>& loads, double* out);

// Adds up what the ranks have put: tokens as whole numbers, losses in the order of the global microbatch
// number (round × ranks + rank). gathered: rank r's doubles begin at r * stride. shape: any rank's loads.
std::vector<ExpertLoad> Fold(const std::vector<RouterLoad>& shape, const double* gathered, int ranks,
                             int64_t stride);

// The few numbers of all layers that every report carries: "moe_balance_loss" and "moe_z_loss" (means over
// the sparse layers), "moe_largest_load" (the most tokens of an expert, in means of its layer), "moe_idle"
// (experts without tokens) and "moe_dropped". Nothing without sparse layers.
void AddScalars(const std::vector<ExpertLoad>& loads, std::map<std::string, double>& scalars);

}  // namespace tandem::trainer
