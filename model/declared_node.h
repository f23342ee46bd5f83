// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/node.h"
#include "model/node_declaration.h"
#include "ops/operations.h"

namespace tandem::model {

class BoundArrays;

// What the code of all nodes of a decoder is made from.
struct NodeContext {
  const DecoderConfig& config;
  const DecoderShapes shapes;
  const NodeTypes types;
  const std::string unit;      // that the node's own parts belong to
  const ops::Operations& ops;  // outlives the nodes
};

// A node whose operands are those of its declaration: the kinds only take their memory by name. Derive from
// DeclaredNode, or of a kind with a weight half from SplitNode.
class DeclaredPasses : public Node {
 public:
  BoundPass Bind(Pass pass, absl::Span<const OperandMemory> operands,
                 comm::Communicator* communicator) const final;

 protected:
  DeclaredPasses(const NodeContext& context, NodeDeclaration declaration);

  // Takes everything that the pass has. A recompute binds the forward, without the outputs that were kept.
  virtual BoundPass BindPass(Pass pass, BoundArrays& in) const = 0;

  // For an attention: where the documents of its rows begin, [B, S], in the batch; not defined where
  // documents are not packed.
  ops::Array DocumentStarts(BoundArrays& in) const;

  // The targets of the batch, [B, S]: each token is predicted from those before it.
  ops::Array Targets(BoundArrays& in) const;

  const DecoderShapes s_;
  const NodeTypes types_;
  const ops::Operations& ops_;
  const double epsilon_;  // of the norms

 private:
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

  // The end of an input half: the backward of the norm that the node begins with, whose weight's gradient
  // waits in `grad_norm` for the weight half, and `normed` again, which that half reads.
  void AddNormBackward(const ops::Array& grad_normed, BoundArrays& in, ops::Calls& calls) const;

  // Where a node normalises what it adds to x: the forward's end, hidden = x + norm(projected).
  void AddNormed(const ops::Array& projected, const ops::Array& x, const ops::Array& norm,
                 const ops::Array& normed, const ops::Array& hidden, ops::Calls& calls) const;
  // The beginning of its input half; the weight's gradient waits in `grad_norm` for the weight half.
  void AddNormedBackward(const ops::Array& grad_hidden, const ops::Array& projected,
                         const ops::Array& grad_projected, BoundArrays& in, ops::Calls& calls) const;
  // Its end: the gradient of x is that of hidden, and what came through the node.
  void AddResidualBackward(const ops::Array& grad_share, const ops::Array& grad_hidden, BoundArrays& in,
                           ops::Calls& calls) const;

  // For what the input half has computed of a parameter's gradient already.
  ops::Call CopyOrAdd(const ops::Array& from, bool add, const ops::Array& to) const;

 private:
  BoundPass BindPass(Pass pass, BoundArrays& in) const final;
};

}  // namespace tandem::model
