// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/v1/report.pb.h"

namespace tandem::parity {

// v1.ExpertLoad and v1.StepReport as values that tests compare and change.
struct ExpertLoad {
  int layer = 0;
  std::vector<int64_t> tokens;
  int64_t dropped = 0;
  double balance_loss = 0;
  double z_loss = 0;
  int64_t further_passes = 0;
  bool operator==(const ExpertLoad&) const = default;
};

struct StepSummary {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t nonfinite = 0;
  std::map<std::string, double> scalars;
  std::vector<double> weight;
  std::vector<double> gradient;
  std::vector<double> update;
  std::vector<double> rms;
  std::vector<double> weight_max;
  std::vector<double> gradient_max;
  std::vector<double> update_max;
  std::vector<ExpertLoad> experts;
};

StepSummary SummaryOf(const v1::StepReport& report);

}  // namespace tandem::parity
