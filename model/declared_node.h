// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "model/decoder_shapes.h"
#include "model/node.h"
#include "model/node_declaration.h"
#include "model/node_kinds.h"
#include "ops/operations.h"

namespace tandem::model {

class BoundArrays;

// The constants of ops/rope.h, shared by all layers of a decoder.
struct RotaryTables {
  ops::Constant cosines;  // [S, head_dim / 2]
  ops::Constant sines;
};

// The arguments of the functions that make nodes (decoder_nodes.h).
struct NodeContext {
  const DecoderNode& node;
  const DecoderShapes shapes;  // ShapesOf the node
  const NodeTypes types;
  const ops::Operations& ops;                        // must outlive the nodes
  const std::shared_ptr<const RotaryTables> tables;  // null if no layer rotates
};

// A node whose code requests its operands by the names in the node's declaration. The classes of kinds with a
// weight half derive from SplitNode, all others from DeclaredNode.
class DeclaredPasses : public Node {
 public:
  explicit DeclaredPasses(const NodeContext& context);

  BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                 comm::Communicator* communicator) const final;

 protected:
  // Requests every array of the pass from `in`, and binds operations to them. A recompute binds the
  // operations of the forward, without the outputs that were kept.
  virtual BoundPass BindPass(Pass pass, BoundArrays& in) const = 0;

  // For attention: [B, S], the first row of each row's document. Undefined if documents are not packed.
  ops::Array DocumentStarts(BoundArrays& in) const;

  // The targets of the batch, [B, S]: the next token of each token.
  ops::Array Targets(BoundArrays& in) const;

  // Adds to `calls` the gradient of a matrix, unless it is frozen. The forward has multiplied `read` by the
  // matrix and by `scale`; `grad` is the gradient of the result.
  void AddMatrixGradient(const std::string& matrix, const ops::Array& grad, const ops::Array& read,
                         BoundArrays& in, ops::Calls& calls, double scale = 1) const;

  const DecoderShapes s_;
  const NodeTypes types_;
  const ops::Operations& ops_;
  const ops::NormConfig norms_;  // of the norms, except norms of gated values
  const std::shared_ptr<const RotaryTables> tables_;
  const NodeDeclaration declaration_;
};

class DeclaredNode : public DeclaredPasses {
 protected:
  using DeclaredPasses::DeclaredPasses;

  virtual BoundPass BindForward(BoundArrays& in) const = 0;
  virtual BoundPass BindBackward(BoundArrays& in) const = 0;

 private:
  BoundPass BindPass(Pass pass, BoundArrays& in) const final;
};

class SplitNode : public DeclaredPasses {
 protected:
  using DeclaredPasses::DeclaredPasses;

  virtual BoundPass BindForward(BoundArrays& in) const = 0;
  virtual BoundPass BindBackwardInput(BoundArrays& in) const = 0;
  virtual BoundPass BindBackwardWeight(BoundArrays& in) const = 0;

  // Adds the last calls of an input half: the backward of the norm that the node begins with. These calls
  // also do two things for the weight half: they compute `normed` again, and write the gradient of the norm's
  // weight to `grad_norm`.
  void AddNormBackward(const ops::Array& grad_normed, BoundArrays& in, ops::Calls& calls) const;

  // The next three are for nodes that normalise what they add to x. This one adds the last calls of the
  // forward: hidden = x + norm(projected).
  void AddNormed(const ops::Array& projected, const ops::Array& x, const ops::Array& norm,
                 const ops::Array& normed, const ops::Array& hidden, ops::Calls& calls) const;
  // Adds the first calls of the input half, which write the gradient of the norm's weight to `grad_norm` for
  // the weight half.
  void AddNormedBackward(const ops::Array& grad_hidden, const ops::Array& projected,
                         const ops::Array& grad_projected, BoundArrays& in, ops::Calls& calls) const;
  // Adds the last calls of the input half, which write the gradient of x: grad_hidden, plus grad_share, which
  // came back through the node.
  void AddResidualBackward(const ops::Array& grad_share, const ops::Array& grad_hidden, BoundArrays& in,
                           ops::Calls& calls) const;

  // Adds the calls of a weight half that copy the gradients of vectors from the intermediates that the input
  // half wrote ("grad_norm" for "norm").
  void AddVectorGradients(BoundArrays& in, ops::Calls& calls) const;

 private:
  BoundPass BindPass(Pass pass, BoundArrays& in) const final;
};

}  // namespace tandem::model
