#include "tests/model/decoder_run.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ops/operations.h"
#include "schedules_v1/block_allocator.h"

namespace tandem::model::test {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int64_t ArenaBytes(const schedules_v1::Bytes& bytes) {
  return RoundUp(bytes.bound, schedules_v1::BlockAllocator::kAlignment);
}

// What is needed at most if nothing is ever freed.
int64_t Capacity(const schedules_v1::Outline& outline) {
  int64_t bytes = 0;
  for (const schedules_v1::Value& value : outline.values) {
    bytes += ArenaBytes(value.bytes) + ArenaBytes(value.gradient_bytes);
  }
  int64_t scratch = 0;
  for (const schedules_v1::Node& node : outline.nodes) {
    scratch = std::max({scratch, ArenaBytes(node.forward.scratch), ArenaBytes(node.backward.scratch)});
  }
  return 2 * (bytes + scratch);
}

}  // namespace

DecoderRun::DecoderRun(const DecoderConfig& config, BatchShape batch, ComputeType type, uint64_t seed)
    : config_(config),
      outline_(DecoderOutline(config, batch, type, std::vector<int64_t>(DecoderUnits(config).size(), 1))),
      nodes_(DecoderNodes(config, batch, type, ops::CpuOperations())),
      device_(device::MakeCpuDevice()),
      arena_(*device_, Capacity(outline_), /*poison=*/true),
      values_(outline_.values.size()),
      value_gradients_(outline_.values.size()) {
  at::set_num_threads(1);  // as on a stream's thread
  const at::ScalarType dtype = type == ComputeType::kFp64 ? at::kDouble : at::kFloat;
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  for (const UnitParameters& unit : DecoderUnits(config)) {
    std::vector<int64_t> offsets;
    int64_t end = 0;
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const Parameter& parameter = unit.parameters[i];
      const bool follows = i > 0 && parameter.block >= 0 && parameter.block == unit.parameters[i - 1].block;
      offsets.push_back(follows ? end : RoundUp(end, 128 / ElementBytes(type)));
      int64_t elements = 1;
      for (const int64_t dim : parameter.shape) {
        elements *= dim;
      }
      end = offsets.back() + elements;
    }
    const at::Tensor flat = at::zeros({end}, dtype);
    const at::Tensor gradient = at::full({end}, std::numeric_limits<double>::quiet_NaN(), dtype);
    UnitMemory& memory = units_.emplace_back();
    memory.parameters.resize(unit.parts.size());
    memory.gradients.resize(unit.parts.size());
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const Parameter& parameter = unit.parameters[i];
      at::Tensor values = at::empty(parameter.shape, at::kDouble);
      for (int64_t j = 0; j < values.numel(); ++j) {
        values.data_ptr<double>()[j] =
            parameter.init == Init::kOnes ? 1 + 0.1 * normal(engine) : 0.2 * normal(engine);
      }
      at::Tensor item = flat.narrow(0, offsets[i], values.numel()).view(parameter.shape);
      item.copy_(values);
      memory.parameters[parameter.part].push_back(item);
      memory.gradients[parameter.part].push_back(
          gradient.narrow(0, offsets[i], values.numel()).view(parameter.shape));
      parameters_[parameter.name] = item;
      gradients_[parameter.name] = memory.gradients[parameter.part].back();
    }
    gradient_written_.emplace_back(unit.parts.size(), false);
  }
}

double DecoderRun::Forward(const at::Tensor& tokens) {
  values_[outline_.batch] = tokens;
  for (std::vector<bool>& parts : gradient_written_) {
    parts.assign(parts.size(), false);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Call(static_cast<int>(i), Pass::kForward);
  }
  return values_[outline_.loss].item<double>();
}

void DecoderRun::Backward() {
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    Call(i, Pass::kBackward);
  }
  values_[outline_.batch] = at::Tensor();
  for (std::vector<at::Tensor>* tensors : {&values_, &value_gradients_}) {
    for (at::Tensor& tensor : *tensors) {
      if (tensor.defined()) {
        arena_.Free(tensor);
        tensor = at::Tensor();
      }
    }
  }
}

void DecoderRun::Call(int node, Pass pass) {
  const schedules_v1::Node& outline = outline_.nodes[node];
  const schedules_v1::Access& access = pass == Pass::kForward ? outline.forward : outline.backward;
  SCOPED_TRACE(outline.name + (pass == Pass::kForward ? " forward" : " backward"));
  std::vector<at::Tensor> reads;
  std::vector<at::Tensor> writes(access.writes.size());
  std::vector<at::Tensor> gradient_reads;
  std::vector<at::Tensor> gradient_writes;
  std::unique_ptr<bool[]> add_gradient(new bool[access.gradient_writes.size() + 1]);
  std::vector<const at::Tensor*> parameters;
  std::vector<at::Tensor*> parameter_gradients;
  std::unique_ptr<bool[]> add_parameter_gradient(new bool[access.parameter_gradients.size() + 1]);
  at::Tensor scratch;
  for (const int value : access.reads) {
    reads.push_back(values_[value]);
  }
  for (const int value : access.gradient_reads) {
    gradient_reads.push_back(value_gradients_[value]);
  }
  int64_t expected_bytes = ArenaBytes(access.scratch);
  for (const int value : access.writes) {
    expected_bytes += ArenaBytes(outline_.values[value].bytes);
  }
  for (size_t i = 0; i < access.gradient_writes.size(); ++i) {
    at::Tensor& there = value_gradients_[access.gradient_writes[i]];
    add_gradient[i] = there.defined();
    expected_bytes +=
        there.defined() ? 0 : ArenaBytes(outline_.values[access.gradient_writes[i]].gradient_bytes);
    gradient_writes.push_back(there);
  }
  for (const schedules_v1::UnitPart& part : access.parameters) {
    parameters.push_back(units_[part.unit].parameters[part.part].data());
  }
  for (size_t i = 0; i < access.parameter_gradients.size(); ++i) {
    const schedules_v1::UnitPart& part = access.parameter_gradients[i];
    parameter_gradients.push_back(units_[part.unit].gradients[part.part].data());
    add_parameter_gradient[i] = gradient_written_[part.unit][part.part];
    gradient_written_[part.unit][part.part] = true;
  }
  NodeCall call{.pass = pass,
                .reads = reads.data(),
                .writes = writes.data(),
                .gradient_reads = gradient_reads.data(),
                .gradient_writes = gradient_writes.data(),
                .add_gradient = add_gradient.get(),
                .parameters = parameters.data(),
                .parameter_gradients = parameter_gradients.data(),
                .add_parameter_gradient = add_parameter_gradient.get(),
                .scratch = &scratch};

  const int64_t before = arena_.in_use();
  nodes_[node]->Prepare(call, arena_);
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> untouched;
  EXPECT_EQ(arena_.in_use() - before, expected_bytes);
  for (size_t i = 0; i < writes.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(writes[i].nbytes()), outline_.values[access.writes[i]].bytes.bound)
        << outline_.values[access.writes[i]].name;
  }
  for (size_t i = 0; i < gradient_writes.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(gradient_writes[i].nbytes()),
              outline_.values[access.gradient_writes[i]].gradient_bytes.bound);
  }
  EXPECT_EQ(scratch.defined() ? static_cast<int64_t>(scratch.nbytes()) : 0, access.scratch.bound);
  untouched = reads;
  untouched.insert(untouched.end(), gradient_reads.begin(), gradient_reads.end());
  for (const auto& [name, parameter] : parameters_) {
    untouched.push_back(parameter);
  }
  for (const at::Tensor& tensor : untouched) {
    copies.push_back(tensor.clone());
  }
  nodes_[node]->Run(call);
  for (size_t i = 0; i < copies.size(); ++i) {
    EXPECT_TRUE(untouched[i].equal(copies[i])) << "input " << i << " changed";
  }
  for (const std::vector<at::Tensor>* written : {&writes, &gradient_writes}) {
    for (const at::Tensor& tensor : *written) {
      EXPECT_TRUE(tensor.isfinite().all().item<bool>());
    }
  }
  if (scratch.defined()) {
    arena_.Free(scratch);
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    values_[access.writes[i]] = writes[i];
  }
  for (size_t i = 0; i < gradient_writes.size(); ++i) {
    value_gradients_[access.gradient_writes[i]] = gradient_writes[i];
  }
}

}  // namespace tandem::model::test
