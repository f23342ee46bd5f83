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

template <typename Visit>
void ParameterArrays::ForEachPiece(const std::vector<at::Tensor>& arrays, const Visit& visit) const {
  for (size_t u = 0; u < units_.size(); ++u) {
    const fsdp::UnitShard& unit = units_[u];
    for (size_t kind = 0; kind < kSuffixes.size(); ++kind) {
      const at::Tensor& array = arrays[u * kSuffixes.size() + kind];
      if (!array.defined()) {
        continue;
      }
      for (const fsdp::Piece& piece : unit.pieces()) {
        visit(kind, unit, piece, array);
      }
    }
  }
}

void ParameterArrays::MakeOwnedShards() {
  if (!owned_shards_.empty()) {
    return;
  }
  ForEachPiece(device_, [&](size_t kind, const fsdp::UnitShard& unit, const fsdp::Piece& piece,
                            const at::Tensor& array) {
    const fsdp::Range owned = fsdp::Intersect(piece.range, unit.owned());
    if (owned.empty()) {
      return;
    }
    const fsdp::Parameter& parameter = unit.layout().parameters[static_cast<size_t>(piece.parameter)];
    owned_shards_.push_back(
        {.name = parameter.name + kSuffixes[kind],
         .elements = parameter.range.size(),
         .begin = owned.begin - parameter.range.begin,
         .data = &owned_pieces_.emplace_back(array.narrow(0, owned.begin - unit.held().begin, owned.size())),
         .type = type_});
  });
  for (size_t i = 0; is_first_ && i < whole_.size(); ++i) {
    const at::Tensor& array = device_[units_.size() * kSuffixes.size() + i];
    owned_shards_.push_back({.name = whole_[i], .elements = array.numel(), .begin = 0, .data = &array});
  }
}

void ParameterArrays::MakeShards() {
  if (!loaded_.empty()) {
    return;
  }
  for (const at::Tensor& array : device_) {
    const bool is_there = !array.defined() || array.scalar_type() == type_;
    loaded_.push_back(is_there ? array
                               : at::zeros_like(array, array.options().dtype(type_).device(at::kCPU)));
  }
  ForEachPiece(loaded_, [&](size_t kind, const fsdp::UnitShard& unit, const fsdp::Piece& piece,
                            const at::Tensor& array) {
    const fsdp::Parameter& parameter = unit.layout().parameters[static_cast<size_t>(piece.parameter)];
    const at::Tensor* const data =
        &pieces_.emplace_back(array.narrow(0, piece.range.begin - unit.held().begin, piece.range.size()));
    shards_.push_back({.name = parameter.name + kSuffixes[kind],
                       .elements = parameter.range.size(),
                       .begin = piece.range.begin - parameter.range.begin,
                       .data = data});
    unit_shards_.push_back({.name = unit.name() + kUnitSuffixes[kind],
                            .elements = unit.layout().elements,
                            .begin = piece.range.begin,
                            .data = data});
  });
  for (size_t i = 0; i < whole_.size(); ++i) {
    const at::Tensor& array = loaded_[units_.size() * kSuffixes.size() + i];
    const Shard shard{.name = whole_[i], .elements = array.numel(), .begin = 0, .data = &array};
    shards_.push_back(shard);
    unit_shards_.push_back(shard);
  }
}

const std::vector<Shard>& ParameterArrays::owned_shards() {
  MakeOwnedShards();
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

void ParameterArrays::Loaded() {
  for (size_t i = 0; i < loaded_.size(); ++i) {
    if (device_[i].defined() && !loaded_[i].is_same(device_[i])) {
      device_[i].copy_(loaded_[i]);
    }
  }
  shards_.clear();
  unit_shards_.clear();
  pieces_.clear();
  loaded_.clear();
}

}  // namespace tandem::checkpoint
