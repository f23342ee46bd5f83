// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_outline.h"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/decoder_shapes.h"
#include "model/node_kinds.h"
#include "model/unit_parameters.h"

namespace tandem::model {
namespace {

using schedules::Access;
using schedules::Bytes;
using schedules::Fixed;
using schedules::Outline;
using schedules::UnitPart;
using schedules::ValueId;

schedules::UnitPrecision BytesOf(const UnitTypes& types) {
  return {.main = ElementBytes(types.main),
          .compute = ElementBytes(types.compute),
          .transport = ElementBytes(types.transport)};
}

std::vector<schedules::UnitClass> UnitClassesOf(const UnitClasses& classes, const UnitParameters& unit,
                                                const UnitLayout& layout) {
  if (layout.elements.size() != classes.types.size()) {
    throw std::logic_error(unit.name + " has " + std::to_string(classes.types.size()) +
                           " classes of types, its layout " + std::to_string(layout.elements.size()));
  }
  std::vector<schedules::UnitClass> all;
  for (size_t i = 0; i < classes.types.size(); ++i) {
    all.push_back({.precision = BytesOf(classes.types[i]), .elements = layout.elements[i]});
  }
  return all;
}

std::vector<schedules::PartRange> PartsOf(const UnitClasses& classes, const UnitParameters& unit,
                                          const UnitLayout& layout) {
  if (layout.parameters.size() != unit.parameters.size()) {
    throw std::logic_error(unit.name + " has " + std::to_string(unit.parameters.size()) +
                           " parameters, its layout " + std::to_string(layout.parameters.size()));
  }
  std::vector<schedules::PartRange> parts;
  for (size_t i = 0; i < unit.parts.size(); ++i) {
    parts.push_back({.name = unit.parts[i].name, .begin = -1, .of_class = classes.of_part[i]});
  }
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    schedules::PartRange& part = parts.at(unit.parameters[i].part);
    const UnitLayout::Range& range = layout.parameters[i];
    if (range.end - range.begin != NumElements(unit.parameters[i].shape) || range.begin < part.end) {
      throw std::logic_error("the layout of " + unit.name + " has another place for " +
                             unit.parameters[i].name);
    }
    part.begin = part.begin < 0 ? range.begin : part.begin;
    part.end = range.end;
  }
  return parts;
}

double FlopsOf(const NodeDeclaration& declaration, const std::string& output) {
  for (const OutputSpec& spec : declaration.outputs) {
    if (spec.tensor.name == output) {
      return spec.flops;
    }
  }
  return 0;
}

struct PartList {
  void Add(UnitPart of, const PartSpec& part, const UnitTypes& types) {
    parts.push_back(of);
    for (const ParameterSpec& parameter : part.parameters) {
      const int64_t elements = NumElements(parameter.shape);
      bytes.compute += elements * ElementBytes(types.compute);
      bytes.transport += elements * ElementBytes(types.transport);
      bytes.main += elements * ElementBytes(types.main);
    }
  }

  std::vector<UnitPart> parts;
  struct {
    int64_t compute = 0;
    int64_t transport = 0;
    int64_t main = 0;
  } bytes;  // of their parameters in each role
};

// The ids for the names in one node's declaration.
struct Names {
  std::map<std::string, ValueId> values;
  std::map<std::string, schedules::StateId> states;
  PartList read;     // parts that its passes read
  PartList trained;  // the parts of these that have gradients
};

// Writes the nodes in forward order, which read the batch and each other's outputs, and the units to which
// their parts belong.
class OutlineWriter {
 public:
  explicit OutlineWriter(const Precision& precision) : precision_(precision) {}

  void AddUnits(const std::vector<UnitParameters>& units, const std::vector<UnitLayout>& layouts) {
    if (layouts.size() != units.size()) {
      throw std::logic_error("the model has " + std::to_string(units.size()) +
                             " units, but there are layouts of " + std::to_string(layouts.size()));
    }
    for (size_t i = 0; i < units.size(); ++i) {
      const UnitClasses classes = ClassesOf(units[i], precision_);
      outline_.units.push_back(
          {.name = units[i].name,
           .layer = units[i].layer,
           .group = units[i].experts ? schedules::UnitGroup::kExpert : schedules::UnitGroup::kDense,
           .frozen = units[i].frozen,
           .classes = UnitClassesOf(classes, units[i], layouts[i]),
           .parts = PartsOf(classes, units[i], layouts[i])});
    }
  }

  void AddBatch(const TensorSpec& batch) {
    outline_.batch = AddValue(batch.name, schedules::ValueKind::kActivation, BytesOf(batch, {precision_, ""}),
                              /*gradient=*/false);
    latest_[batch.name] = outline_.batch;
  }

  void AddNode(const DecoderNode& node, const NodeTypes& types, const NodeDeclaration& declaration) {
    Names names;
    for (const InputSpec& input : declaration.inputs) {
      names.values[input.tensor.name] = latest_.at(input.from);
    }
    for (const OutputSpec& output : declaration.outputs) {
      const std::string& name = output.tensor.name;
      names.values[name] = AddValue(node.name + "." + name, output.kind, BytesOf(output.tensor, types),
                                    output.gradient, output.fill);
      latest_[name] = names.values[name];
      latest_[node.name + "." + name] = names.values[name];
      if (output.loss) {
        outline_.losses.push_back(names.values[name]);
      }
    }
    for (const TensorSpec& state : declaration.states) {
      outline_.states.push_back({node.name + "." + state.name, BytesOf(state, types)});
      names.states[state.name] = static_cast<int>(outline_.states.size()) - 1;
    }
    for (const StateUpdate& update : declaration.state_updates) {
      outline_.states[names.states.at(update.state)].counter = names.states.at(update.counter);
    }
    for (const PartSpec& part : declaration.parts) {
      const UnitPart of = Find(part.unit.empty() ? node.unit : part.unit, part.name);
      const UnitTypes of_part = part.main_type ? InMainType(types.unit) : types.unit;
      names.read.Add(of, part, of_part);
      if (!part.frozen) {
        names.trained.Add(of, part, of_part);
      }
    }
    for (const TensorSpec& intermediate : declaration.intermediates) {
      names.values[intermediate.name] =
          AddValue(node.name + "." + intermediate.name, schedules::ValueKind::kActivation,
                   BytesOf(intermediate, types), /*gradient=*/false);
    }
    const auto access = [&](const PassSpec& pass) {
      Access result = AccessOf(pass, names);
      result.scratch = Fixed(LayOutScratch(declaration, pass, types).bytes);
      // Bytes moved in the device's memory in every round: each operand once, scratch once in each
      // direction.
      const auto rounds = static_cast<double>(pass.rounds);
      result.row_bytes = pass.row_elements * static_cast<double>(ElementBytes(types.unit.compute));
      result.bytes_moved += rounds * 2.0 * static_cast<double>(result.scratch.expected);
      if (pass.parameters) {
        result.bytes_moved += rounds * static_cast<double>(names.read.bytes.compute);
      }
      if (pass.parameter_gradients) {
        // Each round after the first also reads the sum to which it adds.
        const auto& bytes = names.trained.bytes;
        result.bytes_moved +=
            (2 * rounds - 1) * static_cast<double>(pass.rounds > 1 ? bytes.main : bytes.transport);
      }
      return result;
    };
    schedules::Node written{.name = node.name,
                            .kind = node.kind->name,
                            .place = declaration.place,
                            .layer = node.layer,
                            .stream = declaration.stream,
                            .group = declaration.group,
                            .purpose = declaration.purpose,
                            .forward = access(declaration.forward),
                            .backward_input = access(declaration.backward_input)};
    if (declaration.backward_weight.has_value()) {
      written.backward_weight = access(*declaration.backward_weight);
    }
    written.compute = ToText(types.unit.compute) + declaration.products;
    written.recomputes = declaration.recomputes;
    for (const std::string& name : declaration.forward.writes) {
      written.write_flops.push_back(FlopsOf(declaration, name));
    }
    outline_.nodes.push_back(std::move(written));
  }

  Outline Finish() { return std::move(outline_); }

 private:
  ValueId AddValue(const std::string& name, schedules::ValueKind kind, int64_t size, bool gradient,
                   double fill = 1) {
    const Bytes bytes{.expected = static_cast<int64_t>(fill * static_cast<double>(size)), .bound = size};
    outline_.values.push_back(
        {.name = name, .kind = kind, .bytes = bytes, .gradient_bytes = gradient ? bytes : Bytes{}});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  UnitPart Find(const std::string& unit, const std::string& part) const {
    for (size_t u = 0; u < outline_.units.size(); ++u) {
      for (size_t p = 0; p < outline_.units[u].parts.size(); ++p) {
        if (outline_.units[u].name == unit && outline_.units[u].parts[p].name == part) {
          return {.unit = static_cast<int>(u), .part = static_cast<int>(p)};
        }
      }
    }
    throw std::logic_error("no unit " + unit + " with a part " + part);
  }

  // Without scratch and the bytes that parameters move.
  Access AccessOf(const PassSpec& pass, const Names& names) const {
    Access access{.flops = pass.flops, .score_flops = pass.score_flops, .link_bytes = pass.link_bytes};
    const auto add = [&](const std::vector<std::string>& listed, bool gradients, std::vector<ValueId>& ids) {
      for (const std::string& name : listed) {
        ids.push_back(names.values.at(name));
        const schedules::Value& value = outline_.values[ids.back()];
        access.bytes_moved += static_cast<double>((gradients ? value.gradient_bytes : value.bytes).expected);
      }
    };
    add(pass.reads, false, access.reads);
    add(pass.writes, false, access.writes);
    add(pass.gradient_reads, true, access.gradient_reads);
    add(pass.gradient_writes, true, access.gradient_writes);
    if (pass.parameters) {
      access.parameters = names.read.parts;
    }
    if (pass.parameter_gradients) {
      access.parameter_gradients = names.trained.parts;
      access.sums_parameter_gradients = pass.rounds > 1;
    }
    for (const std::string& name : pass.state_reads) {
      access.state_reads.push_back(names.states.at(name));
    }
    for (const std::string& name : pass.state_adds) {
      access.state_adds.push_back(names.states.at(name));
    }
    for (const std::string& name : pass.state_carries) {
      access.state_carries.push_back(names.states.at(name));
    }
    return access;
  }

  const Precision& precision_;
  Outline outline_;
  std::map<std::string, ValueId> latest_;  // the value of each name that a later node may read
};

}  // namespace

schedules::Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                                  DeviceKind device, const std::vector<UnitLayout>& layouts) {
  OutlineWriter writer(precision);
  writer.AddUnits(DecoderUnits(config), layouts);
  writer.AddBatch(BatchTokens({config, batch, precision.hidden(), device}).tensor);
  for (const DecoderNode& node : DecoderNodeList(config)) {
    const NodeTypes types(precision, node.unit);
    writer.AddNode(node, types, DeclarationOf(node, ShapesOf(node, config, batch, types, device)));
  }
  return writer.Finish();
}

}  // namespace tandem::model
