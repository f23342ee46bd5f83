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

// The arguments that the code of every node of a decoder is made from.
struct NodeContext {
  const DecoderNode& node;
  const DecoderShapes shapes;  // ShapesOf the node
  const NodeTypes types;
  const ops::Operations& ops;                        // outlives the nodes
  const std::shared_ptr<const RotaryTables> tables;  // null if no layer rotates
};

// A node that gets its operands by the names in its declaration. A kind with a weight half derives from
// SplitNode, any other from DeclaredNode.
class DeclaredPasses : public Node {
 public:
  explicit DeclaredPasses(const NodeContext& context);

  BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                 comm::Communicator* communicator) const final;

 protected:
  // Binds the pass and requests every array that the pass has. A recompute binds the forward, without the
  // outputs that were kept.
  virtual BoundPass BindPass(Pass pass, BoundArrays& in) const = 0;

  // For attention: [B, S], where the documents of its rows begin. Undefined if documents are not packed.
  ops::Array DocumentStarts(BoundArrays& in) const;

  // The targets of the batch, [B, S]. A target is predicted from the tokens before it.
  ops::Array Targets(BoundArrays& in) const;

  // Adds the gradient of a matrix that gave `scale` times its product with `read`, if it is trained.
  void AddMatrixGradient(const std::string& matrix, const ops::Array& grad, const ops::Array& read,
                         BoundArrays& in, ops::Calls& calls, double scale = 1) const;

  const DecoderShapes s_;
  const NodeTypes types_;
  const ops::Operations& ops_;
  const ops::NormConfig norms_;  // of the norms, except those beside gates
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

  // Adds the end of an input half: the backward of the norm that the node begins with. It also computes
  // `normed` again, which the weight half reads, and leaves the gradient of the norm's weight in `grad_norm`
  // for the weight half.
  void AddNormBackward(const ops::Array& grad_normed, BoundArrays& in, ops::Calls& calls) const;

  // For a node that normalises what it adds to x. Adds the end of its forward: hidden = x + norm(projected).
  void AddNormed(const ops::Array& projected, const ops::Array& x, const ops::Array& norm,
                 const ops::Array& normed, const ops::Array& hidden, ops::Calls& calls) const;
  // Adds the beginning of that node's input half. Leaves the gradient of the norm's weight in `grad_norm` for
  // the weight half.
  void AddNormedBackward(const ops::Array& grad_hidden, const ops::Array& projected,
                         const ops::Array& grad_projected, BoundArrays& in, ops::Calls& calls) const;
  // Adds the end of that node's input half: the gradient of x is grad_hidden plus the gradient that came
  // through the node.
  void AddResidualBackward(const ops::Array& grad_share, const ops::Array& grad_hidden, BoundArrays& in,
                           ops::Calls& calls) const;

  // For the weight half: the gradients of vectors, which the input half has left in intermediates
  // ("grad_norm" for "norm").
  void AddVectorGradients(BoundArrays& in, ops::Calls& calls) const;

 private:
  BoundPass BindPass(Pass pass, BoundArrays& in) const final;
};

}  // namespace tandem::model
