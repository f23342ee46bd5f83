// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/node.h"
#include "model/node_declaration.h"
#include "ops/operations.h"

namespace tandem::model {

class BoundTensors;

// What the code of all nodes of a decoder is made from.
struct NodeContext {
  const DecoderConfig& config;
  const DecoderShapes shapes;
  const NodeTypes types;
  const std::string unit;      // that the node's own parts belong to
  const ops::Operations& ops;  // outlives the nodes
};

// A node whose operands are those of its declaration: the kinds only take their tensors by name.
class DeclaredNode : public Node {
 public:
  BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands) const final;

 protected:
  DeclaredNode(const NodeContext& context, NodeDeclaration declaration);

  // Takes everything that the pass has. A recompute binds the forward, without the outputs that were kept.
  virtual BoundPass BindForward(BoundTensors& in) const = 0;
  virtual BoundPass BindBackward(BoundTensors& in) const = 0;

  const DecoderShapes s_;
  const NodeTypes types_;
  const ops::Operations& ops_;
  const double epsilon_;  // of the norms

 private:
  const NodeDeclaration declaration_;
};

}  // namespace tandem::model
