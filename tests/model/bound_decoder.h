// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/decoder_outline.h"
#include "model/node.h"

namespace tandem::model::test {

// The nodes of a decoder and the memory of one microbatch, each value, gradient and unit at an address of its
// own. Every pass that runs is bound to exactly the memory that the outline says, filled with NaN where the
// pass does not read; what it reads must stay as it was, what it writes must be numbers, and nothing beside
// them may change.
class BoundDecoder {
 public:
  // Parameters are normally distributed around their initial values.
  BoundDecoder(const DecoderConfig& config, BatchShape batch, const Precision& precision, uint64_t seed);

  // All nodes in outline order, and back. Returns the loss. Passes are bound at the first call.
  double Forward(const at::Tensor& tokens);
  void Backward();

  // One pass of one node, bound for this call. recompute: the outputs that it writes, by the values' names.
  void Run(int node, Pass pass, const std::set<std::string>& recompute = {});

  // Binds a pass as Run does, after `change` has changed the operands.
  BoundPass Bind(
      int node, Pass pass, const std::set<std::string>& recompute = {},
      const std::function<void(std::vector<OperandMemory>&)>& change = [](std::vector<OperandMemory>&) {});

  // From now on every gradient, of hidden states and parameters, is added to what is there.
  void AddToGradients() { adds_ = true; }

  // The passes that write the gradients of a node: the halves of its backward, or where it has none its
  // forward.
  std::vector<Pass> GradientPasses(int node) const;
  const schedules::Access& AccessOf(int node, Pass pass) const;

  // Whether a node behind that one writes the gradient of the value as well: its backward comes first.
  bool IsWrittenBefore(int node, int value) const;

  const schedules::Outline& outline() const { return outline_; }
  // Flat, of the type of hidden states, or for what a node keeps of what it computes in; tokens are int64,
  // losses double, log-sum-exps of the type of statistics.
  at::Tensor value(const std::string& name) { return values_.at(name).tensor; }
  at::Tensor gradient(const std::string& name) { return gradients_.at(name).tensor; }
  // By Hugging Face name, shaped, views of their units' buffers.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  const std::map<std::string, at::Tensor>& parameter_gradients() const { return parameter_gradients_; }

 private:
  // A tensor with untouched bytes behind it.
  struct Guarded {
    at::Tensor bytes;
    at::Tensor tensor;
  };
  struct ClassMemory {
    Guarded parameters;
    Guarded gradients;
    UnitTypes types;
    ComputeType gradient_type = ComputeType::kFp32;  // transport, or main where a pass adds them up
  };
  struct UnitMemory {
    std::vector<ClassMemory> classes;
    std::vector<int> part;        // of each parameter
    std::vector<int64_t> offset;  // of each parameter, in elements of its class
  };

  Guarded Allocate(int64_t bytes, at::ScalarType type);
  void RunBound(int node, Pass pass);
  bool Adds(int node, int value) const;
  std::vector<OperandMemory> OperandsOf(int node, Pass pass, const std::set<std::string>& recompute);
  OperandMemory MemoryOf(const schedules::UnitPart& part, bool gradients) const;
  void RunChecked(int node, Pass pass, const std::set<std::string>& recompute, const BoundPass& run);

  const Precision precision_;
  const bool drops_;  // tokens that experts have no room for
  const schedules::Outline outline_;
  const std::vector<std::unique_ptr<Node>> nodes_;
  bool adds_ = false;
  std::map<std::string, Guarded> values_;
  std::map<std::string, Guarded> gradients_;
  std::vector<UnitMemory> units_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, at::Tensor> parameter_gradients_;
  Guarded scratch_;
  // The parts whose gradients an earlier pass of this microbatch has written.
  std::set<std::pair<int, int>> written_;
  std::map<std::pair<int, Pass>, BoundPass> bound_;
};

}  // namespace tandem::model::test
