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
using schedules::Outline;
using schedules::UnitPart;
using schedules::ValueId;

Bytes Fixed(int64_t bytes) { return {.expected = bytes, .bound = bytes}; }

schedules::UnitPrecision PrecisionOf(ComputeType type) {
  const int bytes = ElementBytes(type);
  return {.main = bytes, .compute = bytes, .transport = bytes};
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

struct PartList {
  void Add(UnitPart of, const PartSpec& part, ComputeType type) {
    parts.push_back(of);
    for (const ParameterSpec& parameter : part.parameters) {
      bytes += NumElements(parameter.shape) * ElementBytes(type);
    }
  }

  std::vector<UnitPart> parts;
  int64_t bytes = 0;  // of their parameters
};

// Of one node.
struct NodeParts {
  PartList read;     // by its passes
  PartList trained;  // of those, what has gradients
};

class OutlineWriter {
 public:
  OutlineWriter(const DecoderConfig& config, BatchShape batch, ComputeType type)
      : config_(config), shapes_(config, batch, type), type_(type) {}

  Outline Write(const std::vector<UnitLayout>& layouts) {
    AddUnits(layouts);
    const TensorSpec tokens = BatchTokens(shapes_).tensor;
    outline_.batch = AddValue(tokens.name, tokens, /*gradient=*/false);
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
      outline_.units.push_back({.name = units[i].name,
                                .layer = units[i].layer,
                                .frozen = units[i].frozen,
                                .precision = PrecisionOf(type_),
                                .parts = PartsOf(units[i], layouts[i]),
                                .elements = layouts[i].elements});
    }
  }

  ValueId AddValue(const std::string& name, const TensorSpec& tensor, bool gradient) {
    const Bytes bytes = Fixed(BytesOf(tensor, type_));
    outline_.values.push_back({.name = name, .bytes = bytes, .gradient_bytes = gradient ? bytes : Bytes{}});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  void AddNode(const DecoderNode& node) {
    NodeDeclaration declaration = Declare(node.kind, shapes_);
    FreezeParts(config_, node.unit, shapes_.tokens, declaration);
    Values values;
    for (const InputSpec& input : declaration.inputs) {
      values[input.tensor.name] = latest_.at(input.from);
    }
    for (const OutputSpec& output : declaration.outputs) {
      const std::string& name = output.tensor.name;
      values[name] = AddValue(node.name + "." + name, output.tensor, output.gradient);
      latest_[name] = values[name];
      if (output.loss) {
        outline_.losses.push_back(values[name]);
      }
    }
    NodeParts parts;
    for (const PartSpec& part : declaration.parts) {
      const UnitPart of = Find(part.unit.empty() ? node.unit : part.unit, part.name);
      parts.read.Add(of, part, type_);
      if (!part.frozen) {
        parts.trained.Add(of, part, type_);
      }
    }
    outline_.nodes.push_back({.name = node.name,
                              .kind = node.kind,
                              .layer = node.layer,
                              .forward = AccessOf(declaration.forward, values, parts),
                              .backward = AccessOf(declaration.backward, values, parts)});
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

  Access AccessOf(const PassSpec& pass, const Values& values, const NodeParts& parts) const {
    Access access{.scratch = Fixed(LayOutScratch(pass, type_).bytes), .flops = pass.flops};
    // In the device's memory: every operand once, scratch once each way.
    access.bytes_moved = 2.0 * static_cast<double>(access.scratch.expected);
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
      access.bytes_moved += static_cast<double>(parts.read.bytes);
    }
    if (pass.parameter_gradients) {
      access.parameter_gradients = parts.trained.parts;
      access.bytes_moved += static_cast<double>(parts.trained.bytes);
    }
    return access;
  }

  const DecoderConfig& config_;
  const DecoderShapes shapes_;
  const ComputeType type_;
  Outline outline_;
  Values latest_;  // value of each name that a node behind may read
};

}  // namespace

Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, ComputeType type,
                       const std::vector<UnitLayout>& layouts) {
  return OutlineWriter(config, batch, type).Write(layouts);
}

}  // namespace tandem::model
