// SPDX-License-Identifier: Apache-2.0
#include "bench/timed_operations.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/fsdp/forwarding_shard_kernels.h"
#include "tests/ops/forwarding_kernels.h"

namespace tandem::bench {
namespace {

const char* NameOf(const auto& call) {
  return std::visit([](const auto& args) { return args.kName; }, call);
}

class TimedKernels final : public ops::ForwardingKernels {
 public:
  TimedKernels(const DeviceKernels& inner, CallTimer timer) : ForwardingKernels(inner), timer_(timer) {}

  ops::Call Bind(const ops::KernelCall& call) const override {
    return Timed(NameOf(call), inner_.Bind(call));
  }
  ops::Call Bind(const ops::SparseKernelCall& call) const override {
    return Timed(NameOf(call), inner_.Bind(call));
  }
  ops::Call Bind(const ops::ProductArgs& product) const override {
    const ops::Array& a = product.a;
    const ops::Array& b = product.b;
    return Timed(absl::StrCat("Multiply [", a.rows, ", ", a.columns, "] [", b.rows, ", ", b.columns, "]"),
                 inner_.Bind(product));
  }

 private:
  ops::Call Timed(std::string name, ops::Call call) const {
    return [this, name = std::move(name), call = std::move(call)] { timer_.Time(name, call); };
  }

  const CallTimer timer_;
};

class TimedUnit final : public fsdp::UnitKernels {
 public:
  TimedUnit(std::unique_ptr<UnitKernels> inner, CallTimer timer) : inner_(std::move(inner)), timer_(timer) {}

  void Fold(const void* staging, void* gradients, bool add, fsdp::UnitNormTerms* terms) const override {
    timer_.Time("Fold", [&] { inner_->Fold(staging, gradients, add, terms); });
  }
  void OptimizerStep(const fsdp::OptimizerArrays& arrays, const fsdp::AdamWConfig& config) const override {
    timer_.Time("OptimizerStep", [&] { inner_->OptimizerStep(arrays, config); });
  }

 private:
  const std::unique_ptr<UnitKernels> inner_;
  const CallTimer timer_;
};

class TimedShardKernels final : public fsdp::ForwardingShardKernels {
 public:
  TimedShardKernels(const ShardKernels& inner, CallTimer timer)
      : ForwardingShardKernels(inner), timer_(timer) {}

  std::unique_ptr<fsdp::UnitKernels> MakeUnit(fsdp::ShardGeometry geometry) const override {
    return std::make_unique<TimedUnit>(inner_.MakeUnit(std::move(geometry)), timer_);
  }

 private:
  const CallTimer timer_;
};

}  // namespace

std::unique_ptr<ops::DeviceKernels> MakeTimedKernels(const ops::DeviceKernels& inner, CallTimer timer) {
  return std::make_unique<TimedKernels>(inner, timer);
}

std::unique_ptr<fsdp::ShardKernels> MakeTimedShardKernels(const fsdp::ShardKernels& inner, CallTimer timer) {
  return std::make_unique<TimedShardKernels>(inner, timer);
}

}  // namespace tandem::bench
