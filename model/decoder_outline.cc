// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_outline.h"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/decoder_shapes.h"
#include "model/node_kinds.h"

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

std::vector<schedules::PartRange> PartsOf(const UnitParameters& unit, const UnitLayout& layout) {
  if (layout.parameters.size() != unit.parameters.size()) {
    throw std::logic_error(unit.name + " has " + std::to_string(unit.parameters.size()) +
                           " parameters, its layout " + std::to_string(layout.parameters.size()));
  }
  std::vector<schedules::PartRange> parts;
  for (const std::string& name : unit.parts) {
    parts.push_back({.name = name, .begin = -1});
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
  void Add(UnitPart of, const PartSpec& part) {
    parts.push_back(of);
    for (const ParameterSpec& parameter : part.parameters) {
      elements += NumElements(parameter.shape);
    }
  }

  std::vector<UnitPart> parts;
  int64_t elements = 0;  // of their parameters
};

// Of one node.
struct NodeParts {
  PartList read;     // by its passes
  PartList trained;  // of those, what has gradients
};

class OutlineWriter {
 public:
  OutlineWriter(const DecoderConfig& config, BatchShape batch, const Precision& precision, DeviceKind device)
      : config_(config), batch_(batch), precision_(precision), device_(device) {}

  Outline Write(const std::vector<UnitLayout>& layouts) {
    AddUnits(layouts);
    const TensorSpec tokens = BatchTokens({config_, batch_, precision_.hidden(), device_}).tensor;
    outline_.batch = AddValue(tokens.name, BytesOf(tokens, {precision_, ""}), /*gradient=*/false);
    latest_[tokens.name] = outline_.batch;
    for (const DecoderNode& node : DecoderNodeList(config_)) {
      AddNode(node);
    }
    return std::move(outline_);
  }

 private:
  using Values = std::map<std::string, ValueId>;

  void AddUnits(const std::vector<UnitLayout>& layouts) {
    const std::vector<UnitParameters> units = DecoderUnits(config_);
    if (layouts.size() != units.size()) {
      throw std::logic_error("the decoder has " + std::to_string(units.size()) +
                             " units, but there are layouts of " + std::to_string(layouts.size()));
    }
    for (size_t i = 0; i < units.size(); ++i) {
      outline_.units.push_back(
          {.name = units[i].name,
           .layer = units[i].layer,
           .group = units[i].experts ? schedules::UnitGroup::kExpert : schedules::UnitGroup::kDense,
           .frozen = units[i].frozen,
           .precision = BytesOf(precision_.Of(units[i].name)),
           .parts = PartsOf(units[i], layouts[i]),
           .elements = layouts[i].elements});
    }
  }

  ValueId AddValue(const std::string& name, int64_t size, bool gradient) {
    const Bytes bytes = Fixed(size);
    outline_.values.push_back({.name = name, .bytes = bytes, .gradient_bytes = gradient ? bytes : Bytes{}});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  void AddNode(const DecoderNode& node) {
    const NodeTypes types(precision_, node.unit);
    const DecoderShapes shapes(config_, batch_, types.unit.compute, device_);
    NodeDeclaration declaration = Declare(node.kind, shapes);
    FreezeParts(config_, node.unit, shapes, declaration);
    Values values;
    for (const InputSpec& input : declaration.inputs) {
      values[input.tensor.name] = latest_.at(input.from);
    }
    for (const OutputSpec& output : declaration.outputs) {
      const std::string& name = output.tensor.name;
      values[name] = AddValue(node.name + "." + name, BytesOf(output.tensor, types), output.gradient);
      latest_[name] = values[name];
      if (output.loss) {
        outline_.losses.push_back(values[name]);
      }
    }
    NodeParts parts;
    for (const PartSpec& part : declaration.parts) {
      const UnitPart of = Find(part.unit.empty() ? node.unit : part.unit, part.name);
      parts.read.Add(of, part);
      if (!part.frozen) {
        parts.trained.Add(of, part);
      }
    }
    const auto access = [&](const PassSpec& pass) {
      Access result = AccessOf(pass, values, parts);
      result.scratch = Fixed(LayOutScratch(declaration, pass, types).bytes);
      // In the device's memory: every operand once, scratch once each way.
      result.bytes_moved += 2.0 * static_cast<double>(result.scratch.expected);
      if (pass.parameters) {
        result.bytes_moved += static_cast<double>(parts.read.elements * ElementBytes(types.unit.compute));
      }
      if (pass.parameter_gradients) {
        result.bytes_moved +=
            static_cast<double>(parts.trained.elements * ElementBytes(types.unit.transport));
      }
      return result;
    };
    schedules::Node& added = outline_.nodes.emplace_back();
    added.name = node.name;
    added.kind = node.kind;
    added.layer = node.layer;
    added.compute = ToText(types.unit.compute);
    added.forward = access(declaration.forward);
    added.backward = access(declaration.backward);
    added.recomputes = declaration.recomputes;
    for (const std::string& name : declaration.forward.writes) {
      added.write_flops.push_back(FlopsOf(declaration, name));
    }
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

  // Without scratch and what parameters move.
  Access AccessOf(const PassSpec& pass, const Values& values, const NodeParts& parts) const {
    Access access{.flops = pass.flops};
    const auto add = [&](const std::vector<std::string>& names, bool gradients, std::vector<ValueId>& ids) {
      for (const std::string& name : names) {
        ids.push_back(values.at(name));
        const schedules::Value& value = outline_.values[ids.back()];
        access.bytes_moved += static_cast<double>((gradients ? value.gradient_bytes : value.bytes).expected);
      }
    };
    add(pass.reads, false, access.reads);
    add(pass.writes, false, access.writes);
    add(pass.gradient_reads, true, access.gradient_reads);
    add(pass.gradient_writes, true, access.gradient_writes);
    if (pass.parameters) {
      access.parameters = parts.read.parts;
    }
    if (pass.parameter_gradients) {
      access.parameter_gradients = parts.trained.parts;
    }
    return access;
  }

  const DecoderConfig& config_;
  const BatchShape batch_;
  const Precision& precision_;
  const DeviceKind device_;
  Outline outline_;
  Values latest_;  // value of each name that a node behind may read
};

}  // namespace

Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, const Precision& precision,
                       DeviceKind device, const std::vector<UnitLayout>& layouts) {
  return OutlineWriter(config, batch, precision, device).Write(layouts);
}

}  // namespace tandem::model
