// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "ops/cross_entropy.h"
#include "ops/device_kernels.h"
#include "tests/ops/forwarding_kernels.h"
#include "tests/parity/fakes.h"

namespace tandem::parity {

// The kernels of a job in fp64; in the first microbatch of some of the steps that a rank computes, counted
// from 1, the first element of the gradient of the loss, or the loss itself, is another number.
class ChangedLossGradient final : public ops::ForwardingKernels {
 public:
  using ForwardingKernels::Bind;
  // rounds: of a step. gradient: what the first element becomes. added_loss: what the loss grows by.
  ChangedLossGradient(const ops::DeviceKernels& inner, int rounds, std::function<bool(int64_t step)> changes,
                      std::optional<double> gradient, double added_loss = 0)
      : ForwardingKernels(inner),
        rounds_(rounds),
        changes_(std::move(changes)),
        gradient_(gradient),
        added_loss_(added_loss) {}

  ops::Call Bind(const ops::KernelCall& call) const override {
    const auto* const losses = std::get_if<ops::CrossEntropyArgs<double>>(&call);
    if (losses == nullptr) {
      return inner_.Bind(call);
    }
    return [this, compute = inner_.Bind(call), grad_logits = losses->grad_logits, loss = losses->loss] {
      compute();
      const int64_t before = losses_++;
      if (before % rounds_ == 0 && changes_(before / rounds_ + 1)) {
        *grad_logits = gradient_.value_or(*grad_logits);
        *loss += added_loss_;
      }
    };
  }

 private:
  const int rounds_;
  const std::function<bool(int64_t)> changes_;
  const std::optional<double> gradient_;
  const double added_loss_;
  mutable int64_t losses_ = 0;  // of one rank, on one stream
};

using ChangedLossGradientBackend = WithKernels<ChangedLossGradient>;

}  // namespace tandem::parity
