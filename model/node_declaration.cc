// SPDX-License-Identifier: Apache-2.0
#include "model/node_declaration.h"

#include <algorithm>
#include <stdexcept>

namespace tandem::model {
namespace {

constexpr int64_t kPieceAlignment =
    256;  // bytes: of a buffer, and what copy engines and matrix products like best

}  // namespace

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    elements *= dim;
  }
  return elements;
}

ComputeType TypeOf(ElementType element, const NodeTypes& types) {
  switch (element) {
    case ElementType::kCompute:
      return types.unit.compute;
    case ElementType::kHidden:
      return types.hidden;
    case ElementType::kStatistics:
      return MainType(types.unit.compute);
    case ElementType::kFloat64:
      return ComputeType::kFp64;
    case ElementType::kInt64:
    case ElementType::kByte:
      break;
  }
  throw std::logic_error("integers and bytes are computed in no type");
}

int64_t BytesOf(const TensorSpec& spec, const NodeTypes& types) {
  const int64_t elements = NumElements(spec.shape);
  switch (spec.type) {
    case ElementType::kInt64:
      return elements * 8;
    case ElementType::kByte:
      return elements;
    default:
      return elements * ElementBytes(TypeOf(spec.type, types));
  }
}

ScratchLayout LayOutScratch(const NodeDeclaration& declaration, const PassSpec& pass,
                            const NodeTypes& types) {
  ScratchLayout layout{.pieces = pass.scratch};
  const auto add_converted = [&](const std::vector<std::string>& names, bool gradients) {
    for (const std::string& name : names) {
      const TensorSpec& value = ValueOf(declaration, name);
      if (value.type == ElementType::kHidden && types.hidden != types.unit.compute) {
        layout.pieces.push_back({gradients ? GradientName(name) : name, value.shape});
      }
    }
  };
  add_converted(pass.reads, false);
  add_converted(pass.writes, false);
  add_converted(pass.gradient_reads, true);
  add_converted(pass.gradient_writes, true);
  for (const PartSpec& part : declaration.parts) {
    for (const ParameterSpec& parameter : part.parameters) {
      if (pass.parameter_gradients && !part.frozen && !part.main_type && parameter.gradient_is_statistics &&
          types.unit.transport != TypeOf(ElementType::kStatistics, types)) {
        layout.pieces.push_back({GradientName(parameter.name), parameter.shape, ElementType::kStatistics});
      }
    }
  }
  for (const TensorSpec& piece : layout.pieces) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += AlignedToPiece(BytesOf(piece, types));
  }
  return layout;
}

int64_t AlignedToPiece(int64_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

ElementType ParameterType(const PartSpec& part) {
  return part.main_type ? ElementType::kStatistics : ElementType::kCompute;
}

ElementType GradientType(const PartSpec& part, const ParameterSpec& parameter) {
  return parameter.gradient_is_statistics ? ElementType::kStatistics : ParameterType(part);
}

std::string FrozenGradientScratch(const std::string& parameter) { return "gradient of frozen " + parameter; }

void FreezeParts(const std::string& unit, const DecoderShapes& shapes, NodeDeclaration& declaration) {
  bool trains = false;
  PassSpec& writer = declaration.forward.parameter_gradients   ? declaration.forward
                     : declaration.backward_weight.has_value() ? *declaration.backward_weight
                                                               : declaration.backward_input;
  const double rows = declaration.rows > 0 ? declaration.rows : static_cast<double>(shapes.tokens);
  for (PartSpec& part : declaration.parts) {
    part.frozen = part.frozen || IsFrozen(shapes.config, part.unit.empty() ? unit : part.unit);
    trains = trains || !part.frozen;
    if (!part.frozen || !writer.parameter_gradients) {
      continue;
    }
    for (const ParameterSpec& parameter : part.parameters) {
      if (parameter.shape.size() == 1) {
        if (!declaration.backward_weight.has_value()) {
          writer.scratch.push_back(
              {FrozenGradientScratch(parameter.name), parameter.shape, GradientType(part, parameter)});
        }
      } else {
        const double product = 2.0 * rows * static_cast<double>(NumElements(parameter.shape));
        writer.flops = std::max(0.0, writer.flops - product);
      }
    }
  }
  if (!trains) {
    declaration.backward_weight.reset();
  }
}

const TensorSpec& ValueOf(const NodeDeclaration& declaration, const std::string& name) {
  for (const InputSpec& input : declaration.inputs) {
    if (input.tensor.name == name) {
      return input.tensor;
    }
  }
  for (const OutputSpec& output : declaration.outputs) {
    if (output.tensor.name == name) {
      return output.tensor;
    }
  }
  for (const TensorSpec& intermediate : declaration.intermediates) {
    if (intermediate.name == name) {
      return intermediate;
    }
  }
  throw std::logic_error("no value " + name + " is declared");
}

std::string GradientName(const std::string& name) { return "gradient of " + name; }

}  // namespace tandem::model
