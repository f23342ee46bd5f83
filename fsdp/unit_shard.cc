// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit_shard.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tandem::fsdp {
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

device::Memory UnitShard::Part(size_t i, const char* what, device::Memory memory,
                               int64_t ClassBytes::*role) const {
  if (memory.begin == nullptr || classes_.size() == 1) {
    return memory;
  }
  device::Memory part;
  int64_t end = 0;
  for (size_t c = 0; c < classes_.size(); ++c) {
    const int64_t bytes = classes_[c].bytes().*role;
    if (c == i) {
      part = {.begin = memory.begin + end, .bytes = bytes};
    }
    end += bytes;
  }
  if (end != memory.bytes) {
    throw std::invalid_argument("unit " + name_ + ": " + what + " has " + std::to_string(memory.bytes) +
                                " bytes, and must have " + std::to_string(end));
  }
  return part;
}

BoundCall UnitShard::BindEach(const std::function<BoundCall(size_t)>& bind) const {
  std::vector<BoundCall> calls;
  for (size_t i = 0; i < classes_.size(); ++i) {
    calls.push_back(bind(i));
  }
  if (calls.size() == 1) {
    return std::move(calls.front());
  }
  return [calls = std::move(calls)] {
    for (const BoundCall& call : calls) {
      call();
    }
  };
}

std::vector<StateMemory> UnitShard::ByClass(const StateMemory& state) const {
  std::vector<StateMemory> states;
  for (size_t i = 0; i < classes_.size(); ++i) {
    states.push_back({.weights = Part(i, "weights", state.weights, &ClassBytes::weights),
                      .exp_avg = Part(i, "exp_avg", state.exp_avg, &ClassBytes::moment),
                      .exp_avg_sq = Part(i, "exp_avg_sq", state.exp_avg_sq, &ClassBytes::moment),
                      .published = Part(i, "published", state.published, &ClassBytes::published)});
  }
  return states;
}

std::vector<device::Memory> UnitShard::NormTermsByClass(device::Memory norm_terms) const {
  std::vector<device::Memory> parts;
  for (size_t i = 0; i < classes_.size(); ++i) {
    parts.push_back(Part(i, "norm terms", norm_terms, &ClassBytes::norm_terms));
  }
  return parts;
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
  return BindEach([&](size_t i) {
    return classes_[i].BindUnshard(inner, Part(i, "shard", shard, &ClassBytes::shard),
                                   Part(i, "gathered buffer", gathered, &ClassBytes::gathered));
  });
}

BoundCall UnitShard::BindUnshardOuter(comm::Communicator& outer, device::Memory piece,
                                      device::Memory shard) const {
  return BindEach([&](size_t i) {
    return classes_[i].BindUnshardOuter(outer, Part(i, "piece", piece, &ClassBytes::piece),
                                        Part(i, "shard", shard, &ClassBytes::shard));
  });
}

BoundCall UnitShard::BindAccumulate(device::Memory contribution, device::Memory full_gradient,
                                    bool add) const {
  return BindEach([&](size_t i) {
    return classes_[i].BindAccumulate(Part(i, "contribution", contribution, &ClassBytes::contribution),
                                      Part(i, "full gradient", full_gradient, &ClassBytes::full_gradient),
                                      add);
  });
}

BoundCall UnitShard::BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory,
                                         bool add) const {
  const auto role = memory.accumulated ? &ClassBytes::full_gradient : &ClassBytes::contribution;
  return BindEach([&](size_t i) {
    return classes_[i].BindReduceGradients(
        inner,
        {.contribution = Part(i, "contribution", memory.contribution, role),
         .accumulated = memory.accumulated,
         .staging = Part(i, "staging", memory.staging, role),
         .gradients = Part(i, "accumulator", memory.gradients, &ClassBytes::accumulator),
         .norm_terms = Part(i, "norm terms", memory.norm_terms, &ClassBytes::norm_terms)},
        add);
  });
}

BoundCall UnitShard::BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const {
  return BindEach([&](size_t i) {
    return classes_[i].BindReduceOuter(
        outer, {.gradients = Part(i, "accumulator", memory.gradients, &ClassBytes::accumulator),
                .staging = Part(i, "staging", memory.staging, &ClassBytes::accumulator),
                .norm_terms = Part(i, "norm terms", memory.norm_terms, &ClassBytes::norm_terms)});
  });
}

BoundCall UnitShard::BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const {
  const std::vector<StateMemory> states = ByClass(memory.state);
  return BindEach([&](size_t i) {
    OptimizerMemory part = memory;
    part.gradients = Part(i, "accumulator", memory.gradients, &ClassBytes::accumulator);
    part.state = states[i];
    part.update_norms = Part(i, "update norms", memory.update_norms, &ClassBytes::update_norms);
    part.scratch = Part(i, "scratch of the optimizer", memory.scratch, &ClassBytes::optimizer_scratch);
    return classes_[i].BindOptimizerStep(part, config);
  });
}

}  // namespace tandem::fsdp
