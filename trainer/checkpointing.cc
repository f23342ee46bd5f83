#include "trainer/checkpointing.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <utility>

namespace tandem::trainer {

StateArrays::StateArrays(const std::vector<fsdp::ShardedUnit>& units) {
  device_.reserve(units.size() * 3);
  host_.resize(units.size() * 3);
  for (const fsdp::ShardedUnit& unit : units) {
    const std::pair<const char*, at::Tensor> arrays[] = {
        {"/weights", unit.weights()}, {"/exp_avg", unit.exp_avg()}, {"/exp_avg_sq", unit.exp_avg_sq()}};
    for (const auto& [suffix, tensor] : arrays) {
      shards_.push_back({.name = unit.name() + suffix,
                         .elements = unit.layout().elements,
                         .begin = unit.owned().begin,
                         .data = &host_[device_.size()]});
      device_.push_back(tensor);
    }
  }
}

const std::vector<checkpoint::Shard>& StateArrays::shards() {
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!host_[i].defined()) {
      host_[i] = device_[i].is_cpu() ? device_[i]
                                     : at::empty_like(device_[i], device_[i].options().device(at::kCPU));
    }
  }
  return shards_;
}

void StateArrays::FromDevice() {
  shards();
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!device_[i].is_cpu()) host_[i].copy_(device_[i]);
  }
}

void StateArrays::ToDevice() {
  for (size_t i = 0; i < device_.size(); ++i) {
    if (!device_[i].is_cpu()) device_[i].copy_(host_[i]);
  }
}

StateArrays::~StateArrays() = default;

}  // namespace tandem::trainer
