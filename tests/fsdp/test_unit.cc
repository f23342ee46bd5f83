// SPDX-License-Identifier: Apache-2.0
#include "tests/fsdp/test_unit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "fsdp/buffer_bytes.h"
#include "fsdp/gradient_norm.h"
#include "fsdp/run_inputs.h"
#include "tests/device/tensors.h"

namespace tandem::fsdp::test {

std::string NameOf(const ClassTypes& types) {
  return std::string(device::ToText(types.compute)) + "_" + device::ToText(types.transport);
}

int ElementBytes(const ClassTypes& types) {
  return static_cast<int>(std::min(device::BytesOf(types.compute), device::BytesOf(types.transport)));
}

Layout MixedLayout(const ClassTypes& types) {
  return MakeLayout({{.name = "norm", .shape = {37}},
                     {.name = "q", .shape = {20, 33}, .block = 0},
                     {.name = "k", .shape = {7, 33}, .block = 0},
                     {.name = "out", .shape = {33, 20}},
                     {.name = "bias", .shape = {1}}},
                    ElementBytes(types));
}

device::Device& Cpu() {
  static const std::unique_ptr<device::Device> device = device::MakeCpuDevice();
  return *device;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<at::Tensor> Views(const Layout& layout, const at::Tensor& flat) {
  std::vector<at::Tensor> views;
  for (const Parameter& parameter : layout.parameters) {
    views.push_back(flat.narrow(0, parameter.range.begin, parameter.range.size()).view(parameter.shape));
  }
  return views;
}

std::vector<ParameterInit> Inits(const Layout& layout, double deviation) {
  std::vector<ParameterInit> inits;
  for (const Parameter& parameter : layout.parameters) {
    inits.push_back(parameter.shape.size() == 1 ? ParameterInit{.distribution = Distribution::kOnes}
                                                : ParameterInit{.deviation = deviation});
  }
  return inits;
}

device::Memory RankMemory::Next(int64_t bytes) {
  const device::Memory memory = bytes > 0 ? arena_.At(end_, bytes) : device::Memory{};
  end_ += (bytes + 255) / 256 * 256;
  return memory;
}

void RankMemory::Write(device::Memory to, const void* from, int64_t bytes) const {
  device::TensorIn(device_, to, {bytes}, at::kByte)
      .copy_(at::from_blob(const_cast<void*>(from), {bytes}, at::kByte));
}

std::string RankMemory::Read(device::Memory memory) const {
  const at::Tensor bytes = device::TensorIn(device_, memory, {memory.bytes}, at::kByte).cpu();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(memory.bytes)};
}

// At least as many as a TestUnit needs.
static int64_t BytesFor(const ClassBytes& bytes) {
  return 4 * bytes.full_gradient + 2 * (bytes.contribution + bytes.gathered) + bytes.norm_terms +
         bytes.update_norms + bytes.optimizer_scratch + (1 << 13);
}

TestUnit::TestUnit(const Layout& layout, ClassTypes types, comm::Communicator& comm, device::Device& device,
                   const ShardKernels& kernels, AdamWConfig config)
    : types_(types),
      comm_(comm),
      device_(device),
      config_(config),
      unit_("unit", layout, {.inner = comm.size(), .inner_rank = comm.rank()}, types, device, kernels),
      memory_(device, BytesFor(unit_.bytes())),
      kernels_(kernels) {
  const ClassBytes bytes = unit_.bytes();
  reduce_ = {.contribution = memory_.Next(bytes.contribution),
             .staging = memory_.Next(bytes.contribution),
             .gradients = memory_.Next(bytes.accumulator),
             .norm_terms = memory_.Next(bytes.norm_terms)};
  optimizer_ = {.gradients = reduce_.gradients,
                .outcome = memory_.Next(OutcomeBytes(comm.size())),
                .inputs = memory_.Next(InputsBytes()),
                .state = {.weights = memory_.Next(bytes.weights),
                          .exp_avg = memory_.Next(bytes.moment),
                          .exp_avg_sq = memory_.Next(bytes.moment),
                          .published = memory_.Next(bytes.published)},
                .update_norms = memory_.Next(bytes.update_norms),
                .scratch = memory_.Next(bytes.optimizer_scratch)};
  gathered_ = memory_.Next(bytes.gathered);
  for (const bool add : {false, true}) {
    for (const bool last : {false, true}) {
      ReduceMemory memory = reduce_;
      if (!last) {
        memory.norm_terms = {};
      }
      reduces_.push_back(unit_.BindReduceGradients(comm_.size() > 1 ? &comm_ : nullptr, memory, add));
    }
  }
  step_ = unit_.BindOptimizerStep(optimizer_, config_);
  unshard_ = unit_.BindUnshard(
      comm_, bytes.published > 0 ? optimizer_.state.published : optimizer_.state.weights, gathered_);
}

void TestUnit::Initialize(uint64_t seed, double deviation) {
  unit_.Initialize(seed, Inits(unit_.layout(), deviation), optimizer_.state);
  unit_.Publish(optimizer_.state);
}

void TestUnit::Reduce(const at::Tensor& contribution, bool add, bool last) {
  device::FlatTensorIn(device_, reduce_.contribution, types_.transport).copy_(contribution);
  reduces_[2 * (add ? 1 : 0) + (last ? 1 : 0)]();
}

UnitNormTerms TestUnit::terms() const { return memory_.ReadAs<UnitNormTerms>(reduce_.norm_terms); }

NormOutcome TestUnit::Norm(double num_microbatches, double max_norm, NormRequests requests) {
  const RunInputs inputs{.requests = requests};
  memory_.Write(optimizer_.inputs, &inputs, sizeof(inputs));
  BindGradientNorm(
      comm_, {.norm_terms = {reduce_.norm_terms}, .inputs = optimizer_.inputs, .outcome = optimizer_.outcome},
      {.mean = {.num_microbatches = num_microbatches, .max_norm = max_norm}}, kernels_)();
  return memory_.ReadAs<NormOutcome>(optimizer_.outcome);
}

void TestUnit::SetOutcome(const NormOutcome& outcome) {
  memory_.Write(optimizer_.outcome, &outcome, sizeof(outcome));
}

void TestUnit::OptimizerStep(int64_t update, double learning_rate) {
  const RunInputs inputs{.update = update,
                         .learning_rate = learning_rate,
                         .correction1 = BiasCorrection(config_.beta1, update),
                         .correction2 = BiasCorrection(config_.beta2, update)};
  memory_.Write(optimizer_.inputs, &inputs, sizeof(inputs));
  step_();
}

std::vector<ParameterNorms> TestUnit::norms() const {
  std::vector<ParameterNorms> norms;
  for (size_t i = 0; i < unit_.layout().parameters.size(); ++i) {
    norms.push_back(memory_.ReadAs<ParameterNorms>(optimizer_.update_norms, i));
  }
  return norms;
}

at::Tensor TestUnit::Unshard() {
  unshard_();
  return device::FlatTensorIn(device_, gathered_, types_.compute).cpu().clone();
}

at::Tensor TestUnit::Owned(device::Memory shard, ElementKind type) const {
  return device::FlatTensorIn(device_, shard, type).narrow(0, 0, unit_.owned().size()).cpu().clone();
}

at::Tensor TestUnit::weights() const { return Owned(optimizer_.state.weights, types_.main); }
at::Tensor TestUnit::exp_avg() const { return Owned(optimizer_.state.exp_avg, types_.main); }
at::Tensor TestUnit::exp_avg_sq() const { return Owned(optimizer_.state.exp_avg_sq, types_.main); }
at::Tensor TestUnit::gradients() const { return Owned(reduce_.gradients, types_.main); }
at::Tensor TestUnit::published() const { return Owned(optimizer_.state.published, types_.compute); }

}  // namespace tandem::fsdp::test
