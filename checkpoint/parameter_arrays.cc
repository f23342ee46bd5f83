// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/parameter_arrays.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <stdexcept>

#include "device/device.h"
#include "device/memory.h"

namespace tandem::checkpoint {
namespace {

constexpr std::array kSuffixes = {"", "/exp_avg", "/exp_avg_sq"};
constexpr std::array kUnitSuffixes = {"/weights", "/exp_avg", "/exp_avg_sq"};

}  // namespace

ParameterArrays::ParameterArrays(const device::Device& device, c10::ScalarType type,
                                 const std::vector<fsdp::UnitShard>& units,
                                 const std::vector<fsdp::StateMemory>& states,
                                 const std::vector<WholeArray>& whole, bool is_first)
    : units_(units), type_(type), is_first_(is_first) {
  if (states.size() != units.size()) {
    throw std::invalid_argument("a state for each unit is needed");
  }
  const auto add = [&](const device::Memory& memory, c10::ScalarType held) {
    device_.push_back(memory.begin == nullptr ? at::Tensor() : device::FlatTensorIn(device, memory, held));
  };
  for (size_t u = 0; u < units.size(); ++u) {
    add(states[u].weights, units[u].weights_type());
    add(states[u].exp_avg, type);
    add(states[u].exp_avg_sq, type);
  }
  for (const WholeArray& array : whole) {
    whole_.push_back(array.name);
    add(array.memory, type);
  }
}

ParameterArrays::~ParameterArrays() = default;

void ParameterArrays::MakeShards() {
  if (!host_.empty()) {
    return;
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    const fsdp::UnitShard& unit = units_[u];
    for (size_t kind = 0; kind < kSuffixes.size(); ++kind) {
      const at::Tensor& on_device = device_[u * kSuffixes.size() + kind];
      if (!on_device.defined()) {
        host_.emplace_back();
        continue;
      }
      const bool is_there = on_device.is_cpu() && on_device.scalar_type() == type_;
      host_.push_back(is_there
                          ? on_device
                          : at::zeros_like(on_device, on_device.options().dtype(type_).device(at::kCPU)));
      const auto piece_of = [&](fsdp::Range range) {
        return &pieces_.emplace_back(host_.back().narrow(0, range.begin - unit.held().begin, range.size()));
      };
      for (const fsdp::Piece& piece : unit.pieces()) {
        const fsdp::Parameter& parameter = unit.layout().parameters[static_cast<size_t>(piece.parameter)];
        const auto shard_of = [&](fsdp::Range range) {
          return Shard{.name = parameter.name + kSuffixes[kind],
                       .elements = parameter.range.size(),
                       .begin = range.begin - parameter.range.begin,
                       .data = piece_of(range)};
        };
        shards_.push_back(shard_of(piece.range));
        unit_shards_.push_back({.name = unit.name() + kUnitSuffixes[kind],
                                .elements = unit.layout().elements,
                                .begin = piece.range.begin,
                                .data = shards_.back().data});
        const fsdp::Range owned = fsdp::Intersect(piece.range, unit.owned());
        if (!owned.empty()) {
          owned_shards_.push_back(shard_of(owned));
        }
      }
    }
  }
  for (size_t i = 0; i < whole_.size(); ++i) {
    const at::Tensor& on_device = device_[units_.size() * kSuffixes.size() + i];
    host_.push_back(on_device.is_cpu() ? on_device : at::zeros_like(on_device, at::kCPU));
    const Shard shard{.name = whole_[i],
                      .elements = on_device.numel(),
                      .begin = 0,
                      .data = &pieces_.emplace_back(host_.back())};
    shards_.push_back(shard);
    unit_shards_.push_back(shard);
    if (is_first_) {
      owned_shards_.push_back(shard);
    }
  }
}

const std::vector<Shard>& ParameterArrays::owned_shards() {
  MakeShards();
  return owned_shards_;
}

const std::vector<Shard>& ParameterArrays::shards() {
  MakeShards();
  return shards_;
}

const std::vector<Shard>& ParameterArrays::unit_shards() {
  MakeShards();
  return unit_shards_;
}

void ParameterArrays::FromDevice() {
  MakeShards();
  for (size_t i = 0; i < device_.size(); ++i) {
    if (device_[i].defined() && !host_[i].is_same(device_[i])) {
      host_[i].copy_(device_[i]);
    }
  }
}

void ParameterArrays::ToDevice() {
  for (size_t i = 0; i < host_.size(); ++i) {
    if (device_[i].defined() && !host_[i].is_same(device_[i])) {
      device_[i].copy_(host_[i]);
    }
  }
}

}  // namespace tandem::checkpoint
