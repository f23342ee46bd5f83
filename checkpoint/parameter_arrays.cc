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

constexpr std::array kKinds = {kWeight, kExpAvg, kExpAvgSq};

}  // namespace

ParameterArrays::ParameterArrays(const device::Device& device, c10::ScalarType type,
                                 const std::vector<fsdp::UnitShard>& units,
                                 const std::vector<fsdp::StateMemory>& states,
                                 const std::vector<WholeArray>& whole, bool is_first)
    : type_(type), is_first_(is_first) {
  if (states.size() != units.size()) {
    throw std::invalid_argument("a state for each unit is needed");
  }
  const auto add = [&](const device::Memory& memory, c10::ScalarType held) {
    device_.push_back(memory.begin == nullptr ? at::Tensor() : device::FlatTensorIn(device, memory, held));
  };
  for (size_t u = 0; u < units.size(); ++u) {
    const std::vector<fsdp::StateMemory> by_class = units[u].ByClass(states[u]);
    for (size_t c = 0; c < by_class.size(); ++c) {
      classes_.push_back(&units[u].classes()[c]);
      add(by_class[c].weights, classes_.back()->weights_type());
      add(by_class[c].exp_avg, type);
      add(by_class[c].exp_avg_sq, type);
    }
  }
  for (const WholeArray& array : whole) {
    whole_.push_back(array.name);
    add(array.memory, type);
  }
}

ParameterArrays::~ParameterArrays() = default;

void ParameterArrays::AddPieces(const std::vector<at::Tensor>& arrays, bool owned,
                                std::deque<at::Tensor>& tensors, std::vector<Shard>& shards) const {
  for (size_t i = 0; i < kKinds.size() * classes_.size(); ++i) {
    const fsdp::ClassShard& of_class = *classes_[i / kKinds.size()];
    if (!arrays[i].defined()) {
      continue;
    }
    for (const fsdp::Piece& piece : of_class.pieces()) {
      const fsdp::Range range = owned ? fsdp::Intersect(piece.range, of_class.owned()) : piece.range;
      if (range.empty()) {
        continue;
      }
      const fsdp::Parameter& parameter = of_class.layout().parameters[static_cast<size_t>(piece.parameter)];
      shards.push_back({.name = parameter.name,
                        .kind = kKinds[i % kKinds.size()],
                        .shape = parameter.shape,
                        .slice = parameter.slice,
                        .begin = range.begin - parameter.range.begin,
                        .data = &tensors.emplace_back(
                            arrays[i].narrow(0, range.begin - of_class.held().begin, range.size())),
                        .type = type_});
    }
  }
  for (size_t i = 0; i < whole_.size() && (is_first_ || !owned); ++i) {
    const at::Tensor& array = arrays[kKinds.size() * classes_.size() + i];
    shards.push_back({.name = whole_[i], .kind = kState, .shape = {array.numel()}, .data = &array});
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
  AddPieces(loaded_, /*owned=*/false, pieces_, shards_);
}

const std::vector<Shard>& ParameterArrays::owned_shards() {
  if (owned_shards_.empty()) {
    AddPieces(device_, /*owned=*/true, owned_pieces_, owned_shards_);
  }
  return owned_shards_;
}

const std::vector<Shard>& ParameterArrays::shards() {
  MakeShards();
  return shards_;
}

void ParameterArrays::Loaded() {
  for (size_t i = 0; i < loaded_.size(); ++i) {
    if (device_[i].defined() && !loaded_[i].is_same(device_[i])) {
      device_[i].copy_(loaded_[i]);
    }
  }
  shards_.clear();
  pieces_.clear();
  loaded_.clear();
}

}  // namespace tandem::checkpoint
