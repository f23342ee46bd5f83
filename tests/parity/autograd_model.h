// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/job_plan.h"

namespace tandem::parity {

// The same model written once more, in the plainest way, on LibTorch's autograd, its AdamW and its clipping:
// what Tandem's hand-written passes are measured against. fp64, one process, no sharding.
class AutogradModel {
 public:
  // weights: by Hugging Face name, row-major doubles.
  AutogradModel(const plan::JobPlan& plan, const std::map<std::string, std::vector<double>>& weights);
  ~AutogradModel();

  struct Step {
    double loss = 0;                                       // mean over the microbatches
    std::vector<double> depth_losses;                      // likewise, of each depth (model/depths.h)
    double grad_norm = 0;                                  // before clipping
    std::map<std::string, std::vector<double>> gradients;  // of the mean loss, before clipping
  };

  // tokens: per microbatch [B, S + 1].
  Step TrainStep(const std::vector<std::vector<int64_t>>& tokens, double learning_rate);

  std::map<std::string, std::vector<double>> weights() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::parity
