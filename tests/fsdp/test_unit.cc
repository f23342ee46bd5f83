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

UnitBytes BytesOf(const Layout& layout, const UnitMesh& mesh, const ClassTypes& types) {
  const auto bytes = [](int64_t elements, ElementKind type) { return elements * device::BytesOf(type); };
  return {.held = bytes(HeldRange(layout, mesh).size(), types.main),
          .accumulator = bytes(AccumulatorRange(layout, mesh).size(), types.main),
          .gathered = bytes(PaddedElements(layout, mesh), types.compute),
          .contribution = bytes(PaddedElements(layout, mesh), types.transport)};
}

TestUnit::TestUnit(const Layout& layout, ClassTypes types, comm::Communicator& comm, device::Device& device,
                   const ShardKernels& kernels, AdamWConfig config)
    : types_(types),
      comm_(comm),
      device_(device),
      config_(config),
      unit_("unit", layout, {.inner = comm.size(), .inner_rank = comm.rank()}, types, device, kernels),
      kernels_(kernels) {
  const UnitMesh mesh{.inner = comm.size(), .inner_rank = comm.rank()};
  const UnitBytes unit = BytesOf(layout, mesh, types);
  const UnitBufferBytes bytes = BufferBytesOf(layout, mesh, static_cast<int>(device::BytesOf(types.main)));
  const int64_t small = bytes.norm_terms + bytes.update_norms + bytes.optimizer_scratch + InputsBytes() +
                        OutcomeBytes(comm.size()) + 16 * 256;
  arena_ = std::make_unique<device::StaticArena>(
      device,
      device.Reserve(small + 4 * unit.held + unit_.bytes().published + unit.gathered + 2 * unit.contribution),
      /*fill_with_nan=*/true);
  reduce_ = {.contribution = Next(unit.contribution),
             .staging = Next(unit.contribution),
             .gradients = Next(unit.held),
             .norm_terms = Next(bytes.norm_terms)};
  optimizer_ = {
      .gradients = reduce_.gradients,
      .outcome = Next(OutcomeBytes(comm.size())),
      .inputs = Next(InputsBytes()),
      .state = {.weights = Next(unit.held), .exp_avg = Next(unit.held), .exp_avg_sq = Next(unit.held)},
      .update_norms = Next(bytes.update_norms),
      .scratch = Next(bytes.optimizer_scratch)};
  if (unit_.bytes().published > 0) {
    optimizer_.state.published = Next(unit_.bytes().published);
  }
  gathered_ = Next(unit.gathered);
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
      comm_, unit_.bytes().published > 0 ? optimizer_.state.published : optimizer_.state.weights, gathered_);
}

TestUnit::~TestUnit() = default;

device::Memory TestUnit::Next(int64_t bytes) {
  const device::Memory memory = arena_->At(offset_, bytes);
  offset_ += (bytes + 255) / 256 * 256;
  return memory;
}

template <typename T>
T TestUnit::Read(device::Memory memory) const {
  T value;
  const at::Tensor bytes =
      device::TensorIn(device_, memory, {static_cast<int64_t>(sizeof(T))}, at::kByte).cpu();
  std::memcpy(static_cast<void*>(&value), bytes.const_data_ptr(), sizeof(T));
  return value;
}

void TestUnit::Write(device::Memory memory, const void* from, int64_t bytes) const {
  device::TensorIn(device_, memory, {bytes}, at::kByte)
      .copy_(at::from_blob(const_cast<void*>(from), {bytes}, at::kByte));
}

void TestUnit::Initialize(uint64_t seed, double deviation) {
  unit_.Initialize(seed, Inits(unit_.layout(), deviation), optimizer_.state);
  unit_.Publish(optimizer_.state);
}

void TestUnit::Reduce(const at::Tensor& contribution, bool add, bool last) {
  device::FlatTensorIn(device_, reduce_.contribution, types_.transport).copy_(contribution);
  reduces_[2 * (add ? 1 : 0) + (last ? 1 : 0)]();
}

UnitNormTerms TestUnit::terms() const { return Read<UnitNormTerms>(reduce_.norm_terms); }

NormOutcome TestUnit::Norm(double num_microbatches, double max_norm, NormRequests requests) {
  const RunInputs inputs{.requests = requests};
  Write(optimizer_.inputs, &inputs, sizeof(inputs));
  BindGradientNorm(
      comm_, {.norm_terms = {reduce_.norm_terms}, .inputs = optimizer_.inputs, .outcome = optimizer_.outcome},
      {.mean = {.num_microbatches = num_microbatches, .max_norm = max_norm}}, kernels_)();
  return Read<NormOutcome>(optimizer_.outcome);
}

void TestUnit::SetOutcome(const NormOutcome& outcome) {
  Write(optimizer_.outcome, &outcome, sizeof(outcome));
}

void TestUnit::OptimizerStep(int64_t update, double learning_rate) {
  const RunInputs inputs{.update = update,
                         .learning_rate = learning_rate,
                         .correction1 = BiasCorrection(config_.beta1, update),
                         .correction2 = BiasCorrection(config_.beta2, update)};
  Write(optimizer_.inputs, &inputs, sizeof(inputs));
  step_();
}

std::vector<ParameterNorms> TestUnit::norms() const {
  std::vector<ParameterNorms> norms;
  for (size_t i = 0; i < unit_.layout().parameters.size(); ++i) {
    norms.push_back(Read<ParameterNorms>({.begin = optimizer_.update_norms.begin + i * sizeof(ParameterNorms),
                                          .bytes = sizeof(ParameterNorms)}));
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
