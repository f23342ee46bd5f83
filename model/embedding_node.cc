// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

class EmbeddingNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    return ops_.Embedding(Inputs(in.Value("tokens")), in.Parameter("table"), in.Value("hidden"),
                          s_.config.embedding_multiplier);
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array inputs = Inputs(in.Value("tokens"));
    const ops::Array grad_hidden = in.Gradient("hidden");
    const bool add = in.AddsToParameterGradient("table");
    const ops::Array grad_table = in.ParameterGradient("table");
    const ops::Workspace work = in.Work("work");
    if (!grad_table.defined()) {
      return [] {};
    }
    return ops_.EmbeddingBackward(inputs, grad_hidden, add, grad_table, work, s_.config.embedding_multiplier);
  }

  // Returns [B, S] of [B, S + 1], because the last token of a sequence is only a target.
  ops::Array Inputs(const ops::Array& tokens) const { return tokens.Columns(0, s_.length); }
};

}  // namespace

std::unique_ptr<Node> MakeEmbeddingNode(const NodeContext& context) {
  return std::make_unique<EmbeddingNode>(context);
}

}  // namespace tandem::model
