// SPDX-License-Identifier: Apache-2.0
#include "tests/model/bound_decoder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "model/unit_parameters.h"
#include "ops/operations.h"
#include "tests/device/tensors.h"
#include "tests/model/unit_layouts.h"

namespace tandem::model::test {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr int64_t kAlignment = 64;  // elements: 128 bytes of the narrowest
constexpr int kUntouched = 0xFF;    // NaN in every type

at::ScalarType TypeOf(ComputeType type) { return device::ScalarTypeOf(ElementKindOf(type)); }

// Of a value of that name, which says the node and the output.
at::ScalarType TypeOfValue(const std::string& name, const Precision& precision) {
  const size_t dot = name.rfind('.');
  const std::string output = name.substr(dot + 1);
  if (output == "tokens" || output == "chosen" || output == "ranked") {
    return at::kLong;
  }
  if (output == "loss" || output == "report") {
    return at::kDouble;
  }
  if (output == "hidden" || output == "normed" || output == "made" || output == "shared") {
    return TypeOf(precision.hidden());
  }
  const std::string node = name.substr(0, dot);
  const std::string unit = node.ends_with(".depth_head") ? "head" : node.substr(0, node.rfind('.'));
  const ComputeType compute = precision.Of(unit).compute;
  static const auto& of_mixers = *new std::set<std::string>{"states",       "grad_conv",  "grad_conv_bias",
                                                            "grad_dt_bias", "grad_a_log", "grad_d"};
  const bool statistics = output == "lse" || (output.starts_with("grad_") && output.ends_with("norm")) ||
                          output == "logits" || output == "probabilities" || output == "shared_gates" ||
                          of_mixers.contains(output);
  return TypeOf(statistics ? MainType(compute) : compute);
}

bool AddsUp(const schedules::Outline& outline, schedules::UnitId unit) {
  return std::any_of(outline.nodes.begin(), outline.nodes.end(), [unit](const schedules::Node& node) {
    const std::vector<schedules::UnitPart>& parts = node.forward.parameter_gradients;
    return node.forward.sums_parameter_gradients &&
           std::any_of(parts.begin(), parts.end(), [unit](const auto& part) { return part.unit == unit; });
  });
}

char* BytesOf(const at::Tensor& tensor) { return static_cast<char*>(tensor.mutable_data_ptr()); }

}  // namespace

BoundDecoder::BoundDecoder(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                           uint64_t seed)
    : precision_(precision),
      drops_(config.moe.capacity.factor > 0),
      outline_(DecoderOutline(config, batch, precision, DeviceKind::kCpu,
                              LayOut(DecoderUnits(config), kAlignment, precision))),
      nodes_(DecoderNodes(config, batch, precision, ops::CpuOperations())) {
  at::set_num_threads(1);  // as on a stream's thread
  for (int i = 0; i < static_cast<int>(outline_.values.size()); ++i) {
    const schedules::Value& value = outline_.values[i];
    const at::ScalarType element = TypeOfValue(value.name, precision);
    values_[value.name] = Allocate(value.bytes.bound, element);
    if (value.gradient_bytes.bound > 0) {
      gradients_[value.name] = Allocate(value.gradient_bytes.bound, element);
    }
  }
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  const std::vector<UnitParameters> units = DecoderUnits(config);
  const std::vector<UnitLayout> layouts = LayOut(units, kAlignment, precision);
  for (size_t u = 0; u < units.size(); ++u) {
    UnitMemory& memory = units_.emplace_back();
    const UnitClasses classes = ClassesOf(units[u], precision);
    for (size_t c = 0; c < classes.types.size(); ++c) {
      const UnitTypes& types = classes.types[c];
      const auto allocate = [&](ComputeType type) {
        return Allocate(layouts[u].elements[c] * ElementBytes(type), TypeOf(type));
      };
      const ComputeType gradients = AddsUp(outline_, static_cast<int>(u)) ? types.main : types.transport;
      memory.classes.push_back({allocate(types.compute), allocate(gradients), types, gradients});
    }
    for (size_t i = 0; i < units[u].parameters.size(); ++i) {
      const Parameter& parameter = units[u].parameters[i];
      const UnitLayout::Range& range = layouts[u].parameters[i];
      memory.part.push_back(parameter.part);
      memory.offset.push_back(range.begin);
      at::Tensor numbers = at::empty(parameter.shape, at::kDouble);
      for (int64_t j = 0; j < numbers.numel(); ++j) {
        numbers.data_ptr<double>()[j] =
            parameter.init == Init::kOnes ? 1 + 0.1 * normal(engine) : 0.2 * normal(engine);
      }
      const auto view = [&](const Guarded& guarded) {
        return guarded.tensor.narrow(0, range.begin, range.end - range.begin).view(parameter.shape);
      };
      const ClassMemory& of_class = memory.classes[classes.of_part[parameter.part]];
      parameters_[parameter.name] = view(of_class.parameters).copy_(numbers);
      parameter_gradients_[parameter.name] = view(of_class.gradients);
    }
  }
  int64_t scratch = 0;
  for (const schedules::Node& node : outline_.nodes) {
    scratch = std::max({scratch, node.forward.scratch.bound, node.backward_input.scratch.bound,
                        node.backward_weight.scratch.bound});
  }
  scratch_ = Allocate(scratch, at::kByte);
}

BoundDecoder::Guarded BoundDecoder::Allocate(int64_t bytes, at::ScalarType type) {
  Guarded guarded{.bytes = at::empty({bytes + kGuardBytes}, at::kByte)};
  std::memset(BytesOf(guarded.bytes), kUntouched, bytes + kGuardBytes);
  guarded.tensor = guarded.bytes.narrow(0, 0, bytes).view(type);
  return guarded;
}

double BoundDecoder::Forward(const at::Tensor& tokens) {
  value(outline_.values[outline_.batch].name).copy_(tokens.flatten());
  for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
    RunBound(i, Pass::kForward);
  }
  return value(outline_.values[outline_.losses.back()].name).item<double>();
}

void BoundDecoder::Backward() {
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    for (const Pass pass : GradientPasses(i)) {
      if (pass != Pass::kForward) {
        RunBound(i, pass);
      }
    }
  }
}

void BoundDecoder::RunBound(int node, Pass pass) {
  BoundPass& run = bound_[{node, pass}];
  if (!run) {
    run = Bind(node, pass);
    for (const schedules::UnitPart& part : AccessOf(node, pass).parameter_gradients) {
      written_.insert({part.unit, part.part});
    }
  }
  RunChecked(node, pass, {}, run);
}

void BoundDecoder::Run(int node, Pass pass, const std::set<std::string>& recompute) {
  RunChecked(node, pass, recompute, Bind(node, pass, recompute));
}

BoundPass BoundDecoder::Bind(int node, Pass pass, const std::set<std::string>& recompute,
                             const std::function<void(std::vector<OperandMemory>&)>& change) {
  std::vector<OperandMemory> operands = OperandsOf(node, pass, recompute);
  change(operands);
  return nodes_[node]->Bind(pass, operands, /*communicator=*/nullptr);
}

std::vector<Pass> BoundDecoder::GradientPasses(int node) const {
  std::vector<Pass> passes = {HasBackward(outline_.nodes[node]) ? Pass::kBackwardInput : Pass::kForward};
  if (HasWeightHalf(outline_.nodes[node])) {
    passes.push_back(Pass::kBackwardWeight);
  }
  return passes;
}

const schedules::Access& BoundDecoder::AccessOf(int node, Pass pass) const {
  switch (pass) {
    case Pass::kBackwardInput:
      return outline_.nodes[node].backward_input;
    case Pass::kBackwardWeight:
      return outline_.nodes[node].backward_weight;
    default:
      return outline_.nodes[node].forward;
  }
}

bool BoundDecoder::IsWrittenBefore(int node, int value) const {
  for (int behind = node + 1; behind < static_cast<int>(nodes_.size()); ++behind) {
    const std::vector<int>& writes = AccessOf(behind, GradientPasses(behind).front()).gradient_writes;
    if (std::count(writes.begin(), writes.end(), value) > 0) {
      return true;
    }
  }
  return false;
}

bool BoundDecoder::Adds(int node, int value) const {
  return IsWrittenBefore(node, value) || (adds_ && outline_.values[value].name.ends_with("hidden"));
}

OperandMemory BoundDecoder::MemoryOf(const schedules::UnitPart& part, bool gradients) const {
  const UnitMemory& memory = units_[part.unit];
  const schedules::PartRange& range = outline_.units[part.unit].parts[part.part];
  const ClassMemory& of_class = memory.classes[range.of_class];
  char* begin = BytesOf(gradients ? of_class.gradients.bytes : of_class.parameters.bytes);
  const ComputeType type = gradients ? of_class.gradient_type : of_class.types.compute;
  OperandMemory operand{.begin = begin + range.begin * ElementBytes(type),
                        .bytes = (range.end - range.begin) * ElementBytes(type),
                        .adds = gradients && (adds_ || written_.contains({part.unit, part.part})),
                        .type = type};
  for (size_t i = 0; i < memory.part.size(); ++i) {
    if (memory.part[i] == part.part) {
      operand.parameters.push_back(begin + memory.offset[i] * ElementBytes(type));
    }
  }
  return operand;
}

std::vector<OperandMemory> BoundDecoder::OperandsOf(int node, Pass pass,
                                                    const std::set<std::string>& recompute) {
  const schedules::Access& access = AccessOf(node, pass);
  std::vector<OperandMemory> operands;
  const auto add = [&](const std::string& name, std::map<std::string, Guarded>& memory, bool adds) {
    const at::Tensor& tensor = memory.at(name).tensor;
    operands.push_back(
        {.begin = BytesOf(tensor), .bytes = static_cast<int64_t>(tensor.nbytes()), .adds = adds});
  };
  for (const int id : access.reads) {
    add(outline_.values[id].name, values_, false);
  }
  for (const int id : access.writes) {
    add(outline_.values[id].name, values_, false);
    if (pass == Pass::kRecompute && !recompute.contains(outline_.values[id].name)) {
      operands.back() = {};
    }
  }
  for (const int id : access.gradient_reads) {
    add(outline_.values[id].name, gradients_, false);
  }
  for (const int id : access.gradient_writes) {
    add(outline_.values[id].name, gradients_, Adds(node, id));
  }
  for (const schedules::UnitPart& part : access.parameters) {
    operands.push_back(MemoryOf(part, false));
  }
  for (const schedules::UnitPart& part : access.parameter_gradients) {
    operands.push_back(MemoryOf(part, true));
  }
  if (access.scratch.bound > 0) {
    operands.push_back({.begin = BytesOf(scratch_.bytes), .bytes = access.scratch.bound});
  }
  return operands;
}

void BoundDecoder::RunChecked(int node, Pass pass, const std::set<std::string>& recompute,
                              const BoundPass& run) {
  const schedules::Access& access = AccessOf(node, pass);
  SCOPED_TRACE(outline_.nodes[node].name + " " + ToText(pass));
  std::vector<const Guarded*> written;
  const auto writes = [&](const Guarded& guarded, bool adds) {
    written.push_back(&guarded);
    if (!adds) {
      std::memset(BytesOf(guarded.bytes), kUntouched, guarded.bytes.nbytes());
    }
  };
  std::vector<const Guarded*> rows;  // of experts: as many as tokens have come
  for (const int id : access.writes) {
    const std::string& name = outline_.values[id].name;
    if (pass != Pass::kRecompute || recompute.contains(name)) {
      writes(values_.at(name), false);
      if (drops_ && absl::StrContains(name, ".experts.") && !absl::EndsWith(name, ".made")) {
        rows.push_back(written.back());
      }
    }
  }
  for (const int id : access.gradient_writes) {
    writes(gradients_.at(outline_.values[id].name), Adds(node, id));
  }
  std::memset(BytesOf(scratch_.bytes), kUntouched, scratch_.bytes.nbytes());
  // Everything else must stay as it is: other values and gradients, all parameters, other parts' gradients.
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  const auto keep = [&](const at::Tensor& bytes) { kept.push_back({bytes, bytes.clone()}); };
  for (const auto* all : {&values_, &gradients_}) {
    for (const auto& [name, guarded] : *all) {
      const bool changes = std::count(written.begin(), written.end(), &guarded) > 0;
      keep(changes ? guarded.bytes.narrow(0, guarded.tensor.nbytes(), kGuardBytes) : guarded.bytes);
    }
  }
  keep(scratch_.bytes.narrow(0, access.scratch.bound, scratch_.bytes.numel() - access.scratch.bound));
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    for (int c = 0; c < static_cast<int>(units_[u].classes.size()); ++c) {
      const ClassMemory& of_class = units_[u].classes[c];
      keep(of_class.parameters.bytes);
      int64_t end = 0;
      const int element = ElementBytes(of_class.gradient_type);
      for (int p = 0; p < static_cast<int>(outline_.units[u].parts.size()); ++p) {
        const schedules::PartRange& range = outline_.units[u].parts[p];
        const schedules::UnitPart part{.unit = u, .part = p};
        if (range.of_class == c &&
            std::count(access.parameter_gradients.begin(), access.parameter_gradients.end(), part) > 0) {
          keep(of_class.gradients.bytes.narrow(0, end, range.begin * element - end));
          end = range.end * element;
        }
      }
      keep(of_class.gradients.bytes.narrow(0, end, of_class.gradients.bytes.numel() - end));
    }
  }
  run();
  for (const auto& [now, before] : kept) {
    EXPECT_EQ(std::memcmp(now.const_data_ptr(), before.const_data_ptr(), now.nbytes()), 0)
        << "memory of " << now.nbytes() << " bytes changed that the pass does not write";
  }
  for (const Guarded* guarded : written) {
    EXPECT_TRUE(guarded->tensor.isfinite().all().item<bool>() ||
                std::count(rows.begin(), rows.end(), guarded) > 0)
        << "a write left something out";
  }
}

}  // namespace tandem::model::test
