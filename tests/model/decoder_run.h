#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/device.h"
#include "model/config.h"
#include "model/node.h"
#include "schedules_v1/outline.h"

namespace tandem::model::test {

// Runs the nodes of a decoder on one microbatch, as an executor would, in outline order. Parameters lie in
// flat buffers as in a gathered slot. Every call checks that what Prepare takes from the arena is what the
// outline says, that reads and parameters stay as they were, and that everything written is finite.
class DecoderRun {
 public:
  // Parameters are normally distributed around their initial values.
  DecoderRun(const DecoderConfig& config, BatchShape batch, ComputeType type, uint64_t seed);

  // Returns the loss. Values stay allocated until Backward.
  double Forward(const at::Tensor& tokens);
  void Backward();

  // By Hugging Face name, views.
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  const std::map<std::string, at::Tensor>& gradients() const { return gradients_; }

 private:
  struct UnitMemory {
    // Per part, a tensor per item.
    std::vector<std::vector<at::Tensor>> parameters;
    std::vector<std::vector<at::Tensor>> gradients;
  };

  void Call(int node, Pass pass);

  const DecoderConfig config_;
  const schedules_v1::Outline outline_;
  const std::vector<std::unique_ptr<Node>> nodes_;
  const std::unique_ptr<device::Device> device_;
  device::Arena arena_;
  std::vector<UnitMemory> units_;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, at::Tensor> gradients_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> value_gradients_;
  std::vector<std::vector<bool>> gradient_written_;  // per unit and part
};

}  // namespace tandem::model::test
