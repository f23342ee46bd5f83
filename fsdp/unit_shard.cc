// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit_shard.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tandem::fsdp {
namespace {

BoundCall InOrder(std::vector<BoundCall> calls) {
  if (calls.size() == 1) {
    return std::move(calls.front());
  }
  return [calls = std::move(calls)] {
    for (const BoundCall& call : calls) {
      call();
    }
  };
}

}  // namespace

UnitShard::UnitShard(std::string name, std::vector<UnitClass> classes, const UnitMesh& mesh,
                     device::Device& device, const ShardKernels& kernels)
    : name_(std::move(name)) {
  std::erase_if(classes, [](const UnitClass& each) { return each.layout.elements == 0; });
  const bool publishes = std::any_of(classes.begin(), classes.end(), [](const UnitClass& each) {
    return each.types.compute != each.types.main;
  });
  for (UnitClass& each : classes) {
    if (each.types.frozen != classes.front().types.frozen) {
      throw std::invalid_argument("unit " + name_ + ": some of its parameters are frozen, and not all");
    }
    each.types.publishes = publishes;
    classes_.emplace_back(name_, std::move(each.layout), mesh, each.types, device, kernels);
  }
}

std::vector<device::Memory> UnitShard::Cut(const char* what, device::Memory memory,
                                           int64_t ClassBytes::*role) const {
  if (memory.begin == nullptr || classes_.size() == 1) {
    return std::vector<device::Memory>(classes_.size(), memory);
  }
  std::vector<device::Memory> parts;
  int64_t begin = 0;
  for (const ClassShard& each : classes_) {
    const int64_t bytes = each.bytes().*role;
    parts.push_back({.begin = memory.begin + begin, .bytes = bytes});
    begin += bytes;
  }
  if (begin != memory.bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, and must have " + std::to_string(begin));
  }
  return parts;
}

std::vector<StateMemory> UnitShard::ByClass(const StateMemory& state) const {
  const std::vector<device::Memory> weights = Cut("weights", state.weights, &ClassBytes::weights);
  const std::vector<device::Memory> exp_avg = Cut("exp_avg", state.exp_avg, &ClassBytes::moment);
  const std::vector<device::Memory> exp_avg_sq = Cut("exp_avg_sq", state.exp_avg_sq, &ClassBytes::moment);
  const std::vector<device::Memory> published = Cut("published", state.published, &ClassBytes::published);
  std::vector<StateMemory> states;
  for (size_t i = 0; i < classes_.size(); ++i) {
    states.push_back({.weights = weights[i],
                      .exp_avg = exp_avg[i],
                      .exp_avg_sq = exp_avg_sq[i],
                      .published = published[i]});
  }
  return states;
}

std::vector<device::Memory> UnitShard::NormTermsByClass(device::Memory norm_terms) const {
  return Cut("norm terms", norm_terms, &ClassBytes::norm_terms);
}

void UnitShard::Initialize(uint64_t seed, const std::vector<ParameterInit>& inits,
                           const StateMemory& state) const {
  const std::vector<StateMemory> states = ByClass(state);
  auto next = inits.begin();
  for (size_t i = 0; i < classes_.size(); ++i) {
    const auto end = next + std::min(inits.end() - next, std::ssize(classes_[i].layout().parameters));
    const bool last = i + 1 == classes_.size();
    classes_[i].Initialize(seed, {next, last ? inits.end() : end}, states[i]);
    next = end;
  }
}

void UnitShard::Publish(const StateMemory& state) const {
  const std::vector<StateMemory> states = ByClass(state);
  for (size_t i = 0; i < classes_.size(); ++i) {
    classes_[i].Publish(states[i]);
  }
}

BoundCall UnitShard::BindUnshard(comm::Communicator& inner, device::Memory shard,
                                 device::Memory gathered) const {
  const std::vector<device::Memory> from = Cut("shard", shard, &ClassBytes::shard);
  const std::vector<device::Memory> to = Cut("gathered buffer", gathered, &ClassBytes::gathered);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindUnshard(inner, from[i], to[i]));
  }
  return InOrder(std::move(calls));
}

BoundCall UnitShard::BindUnshardOuter(comm::Communicator& outer, device::Memory piece,
                                      device::Memory shard) const {
  const std::vector<device::Memory> from = Cut("piece", piece, &ClassBytes::piece);
  const std::vector<device::Memory> to = Cut("shard", shard, &ClassBytes::shard);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindUnshardOuter(outer, from[i], to[i]));
  }
  return InOrder(std::move(calls));
}

BoundCall UnitShard::BindAccumulate(device::Memory contribution, device::Memory full_gradient,
                                    bool add) const {
  const std::vector<device::Memory> from = Cut("contribution", contribution, &ClassBytes::contribution);
  const std::vector<device::Memory> to = Cut("full gradient", full_gradient, &ClassBytes::full_gradient);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindAccumulate(from[i], to[i], add));
  }
  return InOrder(std::move(calls));
}

BoundCall UnitShard::BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory,
                                         bool add) const {
  const auto role = memory.accumulated ? &ClassBytes::full_gradient : &ClassBytes::contribution;
  const std::vector<device::Memory> contribution = Cut("contribution", memory.contribution, role);
  const std::vector<device::Memory> staging = Cut("staging", memory.staging, role);
  const std::vector<device::Memory> gradients =
      Cut("accumulator", memory.gradients, &ClassBytes::accumulator);
  const std::vector<device::Memory> norm_terms = NormTermsByClass(memory.norm_terms);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindReduceGradients(inner,
                                                    {.contribution = contribution[i],
                                                     .accumulated = memory.accumulated,
                                                     .staging = staging[i],
                                                     .gradients = gradients[i],
                                                     .norm_terms = norm_terms[i]},
                                                    add));
  }
  return InOrder(std::move(calls));
}

BoundCall UnitShard::BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const {
  const std::vector<device::Memory> gradients =
      Cut("accumulator", memory.gradients, &ClassBytes::accumulator);
  const std::vector<device::Memory> staging = Cut("staging", memory.staging, &ClassBytes::accumulator);
  const std::vector<device::Memory> norm_terms = NormTermsByClass(memory.norm_terms);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindReduceOuter(
        outer, {.gradients = gradients[i], .staging = staging[i], .norm_terms = norm_terms[i]}));
  }
  return InOrder(std::move(calls));
}

BoundCall UnitShard::BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const {
  const std::vector<device::Memory> gradients =
      Cut("accumulator", memory.gradients, &ClassBytes::accumulator);
  const std::vector<StateMemory> states = ByClass(memory.state);
  const std::vector<device::Memory> update_norms =
      Cut("update norms", memory.update_norms, &ClassBytes::update_norms);
  const std::vector<device::Memory> scratch =
      Cut("scratch of the optimizer", memory.scratch, &ClassBytes::optimizer_scratch);
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(classes_[i].BindOptimizerStep({.gradients = gradients[i],
                                                   .outcome = memory.outcome,
                                                   .inputs = memory.inputs,
                                                   .state = states[i],
                                                   .update_norms = update_norms[i],
                                                   .scratch = scratch[i]},
                                                  config));
  }
  return InOrder(std::move(calls));
}

}  // namespace tandem::fsdp
