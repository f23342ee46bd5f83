// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/parameter_arrays.h"

#include <array>
#include <stdexcept>

#include "device/device.h"
#include "device/memory.h"

namespace tandem::checkpoint {
namespace {

constexpr std::array kKinds = {kWeight, kExpAvg, kExpAvgSq};

}  // namespace

ParameterArrays::ParameterArrays(device::Device& device, device::ElementKind type,
                                 const std::vector<fsdp::UnitShard>& units,
                                 const std::vector<fsdp::StateMemory>& states,
                                 const std::vector<WholeArray>& whole, bool is_first)
    : type_(type), is_first_(is_first) {
  if (states.size() != units.size()) {
    throw std::invalid_argument("a state for each unit is needed");
  }
  const auto add = [&](const device::Memory& memory, device::ElementKind held) {
    held_.push_back(
        {.memory = memory, .type = held, .device = device.finishes_in_calls() ? nullptr : &device});
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

void ParameterArrays::AddPieces(const std::vector<Elements>& arrays, bool owned,
                                std::vector<Shard>& shards) const {
  for (size_t i = 0; i < kKinds.size() * classes_.size(); ++i) {
    const fsdp::ClassShard& of_class = *classes_[i / kKinds.size()];
    if (arrays[i].memory.begin == nullptr) {
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
                        .data = arrays[i].Part(range.begin - of_class.held().begin, range.size()),
                        .type = type_});
    }
  }
  for (size_t i = 0; i < whole_.size() && (is_first_ || !owned); ++i) {
    const Elements& array = arrays[kKinds.size() * classes_.size() + i];
    shards.push_back({.name = whole_[i], .kind = kState, .shape = {array.size()}, .data = array});
  }
}

void ParameterArrays::MakeShards() {
  if (!loaded_.empty()) {
    return;
  }
  for (const Elements& array : held_) {
    loaded_.push_back(array);
    if (array.memory.begin != nullptr && array.type != type_) {
      std::string& on_host =
          on_host_.emplace_back(static_cast<size_t>(array.size() * device::BytesOf(type_)), 0);
      loaded_.back() = {.memory = device::MemoryOf(on_host), .type = type_};
    }
  }
  AddPieces(loaded_, /*owned=*/false, shards_);
}

const std::vector<Shard>& ParameterArrays::owned_shards() {
  if (owned_shards_.empty()) {
    AddPieces(held_, /*owned=*/true, owned_shards_);
  }
  return owned_shards_;
}

const std::vector<Shard>& ParameterArrays::shards() {
  MakeShards();
  return shards_;
}

void ParameterArrays::Loaded() {
  auto on_host = on_host_.begin();
  for (size_t i = 0; i < loaded_.size(); ++i) {
    if (loaded_[i].memory.begin != held_[i].memory.begin) {
      WriteConverted(*on_host++, SafetensorsDtype(type_), held_[i]);
    }
  }
  shards_.clear();
  on_host_.clear();
  loaded_.clear();
}

}  // namespace tandem::checkpoint
