// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/static_arena.h"
#include "fsdp/class_shard.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/parameter_norms.h"
#include "fsdp/shard_kernels.h"

namespace tandem::fsdp::test {

// The types that a class may have.
using device::ElementKind;
inline constexpr ClassTypes kClassTypes[] = {
    {ElementKind::kFloat, ElementKind::kFloat, ElementKind::kFloat},
    {ElementKind::kDouble, ElementKind::kDouble, ElementKind::kDouble},
    {ElementKind::kFloat, ElementKind::kBf16, ElementKind::kBf16},
    {ElementKind::kFloat, ElementKind::kBf16, ElementKind::kFloat}};
std::string NameOf(const ClassTypes& types);  // "bfloat16_float32": compute and transport
int ElementBytes(const ClassTypes& types);    // of an element in the narrowest of its types

// A layout of vectors and matrices, two of which are a block.
Layout MixedLayout(const ClassTypes& types);

device::Device& Cpu();

bool SameBits(const at::Tensor& a, const at::Tensor& b);

// Returns a view of `flat` [at least layout.elements] for each parameter, with the parameter's shape.
std::vector<at::Tensor> Views(const Layout& layout, const at::Tensor& flat);

// Initializes matrices from the normal distribution, and other parameters with ones.
std::vector<ParameterInit> Inits(const Layout& layout, double deviation);

// Memory of one rank on any kind of device, which the host reads and writes. NaN at first.
class RankMemory {
 public:
  RankMemory(device::Device& device, int64_t bytes)
      : device_(device), arena_(device, device.Reserve(bytes), /*fill_with_nan=*/true) {}

  device::Memory Next(int64_t bytes);  // no memory for 0 bytes
  void Write(device::Memory to, const void* from, int64_t bytes) const;
  std::string Read(device::Memory memory) const;
  template <typename T>
  T ReadAs(device::Memory memory, size_t i = 0) const {  // the i-th T of `memory`
    T value;
    const std::string bytes = Read({.begin = memory.begin + i * sizeof(T), .bytes = sizeof(T)});
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
    return value;
  }

 private:
  device::Device& device_;
  const device::StaticArena arena_;
  int64_t end_ = 0;
};

inline constexpr AdamWConfig kAdamW{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

// One rank's unit with all the memory that it needs. Calls run on the current stream; results are copies on
// the host.
class TestUnit {
 public:
  // The arguments must outlive this object. Its ranks are those of `comm`.
  TestUnit(const Layout& layout, ClassTypes types, comm::Communicator& comm, device::Device& device,
           const ShardKernels& kernels, AdamWConfig config = kAdamW);
  TestUnit(const Layout& layout, ElementKind type, comm::Communicator& comm, device::Device& device,
           const ShardKernels& kernels, AdamWConfig config = kAdamW)
      : TestUnit(layout, ClassTypes{type, type, type}, comm, device, kernels, config) {}

  const ClassShard& unit() const { return unit_; }
  void Initialize(uint64_t seed, double deviation = 0.02);

  // contribution: [PaddedElements], on the host, in the transport type. last: also computes the norm terms.
  void Reduce(const at::Tensor& contribution, bool add, bool last);
  UnitNormTerms terms() const;

  // Computes or sets the outcome that OptimizerStep uses from now on.
  NormOutcome Norm(double num_microbatches, double max_norm, NormRequests requests = {});
  void SetOutcome(const NormOutcome& outcome);

  void OptimizerStep(int64_t update, double learning_rate = 1e-2);
  std::vector<ParameterNorms> norms() const;

  at::Tensor Unshard();  // [PaddedElements], in the compute type

  // The owned part of each array.
  at::Tensor weights() const;
  at::Tensor exp_avg() const;
  at::Tensor exp_avg_sq() const;
  at::Tensor gradients() const;
  at::Tensor published() const;

 private:
  at::Tensor Owned(device::Memory shard, ElementKind type) const;

  const ClassTypes types_;
  comm::Communicator& comm_;
  device::Device& device_;
  const AdamWConfig config_;
  const ClassShard unit_;
  RankMemory memory_;
  ReduceMemory reduce_;
  OptimizerMemory optimizer_;
  device::Memory gathered_;
  std::vector<BoundCall> reduces_;  // add, last
  BoundCall step_;
  BoundCall unshard_;
  const ShardKernels& kernels_;
};

}  // namespace tandem::fsdp::test
