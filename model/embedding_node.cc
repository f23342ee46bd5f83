// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

class EmbeddingNode final : public DeclaredNode {
 public:
  explicit EmbeddingNode(const NodeContext& context)
      : DeclaredNode(context, kEmbedding.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, inputs = Inputs(in.Value("tokens")), table = in.Parameter("table"),
            hidden = in.Value("hidden")]() mutable { ops_.Embedding(inputs, table, hidden); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [this, inputs = Inputs(in.Value("tokens")), grad_hidden = in.Gradient("hidden"),
            add = in.AddsToParameterGradient("table"), grad_table = in.ParameterGradient("table"),
            work = in.Work("work")]() mutable {
      if (grad_table.defined()) {
        ops_.EmbeddingBackward(inputs, grad_hidden, add, grad_table, work);
      }
    };
  }

  // [B, S] of [B, S + 1]: the last token of a sequence is only predicted.
  at::Tensor Inputs(const at::Tensor& tokens) const { return tokens.narrow(1, 0, s_.length); }
};

}  // namespace

std::unique_ptr<Node> MakeEmbeddingNode(const NodeContext& context) {
  return std::make_unique<EmbeddingNode>(context);
}

}  // namespace tandem::model
