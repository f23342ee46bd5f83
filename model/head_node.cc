// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <stdexcept>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Tensors have the names of head.cc.

// [B, S]: each token is predicted from those before it.
at::Tensor TargetsIn(const at::Tensor& tokens, const BatchShape& batch) {
  return tokens.narrow(1, batch.targets_column(), batch.sequence_length);
}

class HeadNode final : public DeclaredNode {
 public:
  explicit HeadNode(const NodeContext& context) : DeclaredNode(context, kHead.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return
        [this, x = in.Value("x"), targets = TargetsIn(in.Value("tokens"), s_.batch), loss = in.Value("loss"),
         logits = in.Value("grad_logits"), norm = in.Parameter("norm"), weight = in.Parameter("weight"),
         normed = in.Scratch("normed"), lse = in.Scratch("lse"), products = in.Work("products")]() mutable {
          ops_.RmsNorm(x, norm, epsilon_, normed);
          ops_.Linear(normed, weight, /*residual=*/at::Tensor(), logits, products);
          ops_.CrossEntropy(logits, targets, lse, loss, /*grad_logits=*/logits);
        };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), grad_logits = in.Value("grad_logits"), grad_x = in.Gradient("x"),
            add_x = in.AddsToGradient("x"), norm = in.Parameter("norm"), weight = in.Parameter("weight"),
            grad_norm = in.ParameterGradient("norm"), grad_weight = in.ParameterGradient("weight"),
            add_norm = in.AddsToParameterGradient("norm"), add_weight = in.AddsToParameterGradient("weight"),
            normed = in.Scratch("normed"), grad_normed = in.Scratch("grad_normed"),
            norm_work = in.Work("norm_work"), products = in.Work("products")]() mutable {
      if (grad_weight.defined()) {
        ops_.RmsNorm(x, norm, epsilon_, normed);
        ops_.LinearBackwardWeight(grad_logits, normed, add_weight, grad_weight, products);
      }
      ops_.LinearBackwardInput(grad_logits, weight, /*add=*/false, grad_normed, products);
      ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/at::Tensor(), add_x, grad_x, add_norm,
                           grad_norm, norm_work);
    };
  }
};

class ChunkedHeadNode final : public DeclaredNode {
 public:
  explicit ChunkedHeadNode(const NodeContext& context)
      : DeclaredNode(context, kHead.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), targets = TargetsIn(in.Value("tokens"), s_.batch),
            loss = in.Value("loss"), grad_x = in.Gradient("x"), add_x = in.AddsToGradient("x"),
            norm = in.Parameter("norm"), weight = in.Parameter("weight"),
            grad_norm = in.ParameterGradient("norm"), grad_weight = in.ParameterGradient("weight"),
            add_norm = in.AddsToParameterGradient("norm"), add_weight = in.AddsToParameterGradient("weight"),
            normed = in.Scratch("normed"), logits = in.Scratch("logits"),
            grad_normed = in.Scratch("grad_normed"), lse = in.Scratch("lse"),
            norm_work = in.Work("norm_work"), products = in.Work("products")]() mutable {
      for (int64_t first = 0; first < s_.tokens; first += s_.logit_rows) {
        const int64_t rows = std::min(s_.logit_rows, s_.tokens - first);
        const at::Tensor x_rows = x.narrow(0, first, rows);
        at::Tensor normed_rows = normed.narrow(0, 0, rows);
        at::Tensor logit_rows = logits.narrow(0, 0, rows);
        ops_.RmsNorm(x_rows, norm, epsilon_, normed_rows);
        ops_.Linear(normed_rows, weight, /*residual=*/at::Tensor(), logit_rows, products);
        ops_.CrossEntropyChunk(logit_rows, targets, first, lse, loss, /*grad_logits=*/logit_rows);
        if (!grad_x.defined()) {  // a validation
          continue;
        }
        if (grad_weight.defined()) {
          ops_.LinearBackwardWeight(logit_rows, normed_rows, add_weight || first > 0, grad_weight, products);
        }
        at::Tensor grad_rows = grad_normed.narrow(0, 0, rows);
        at::Tensor grad_x_rows = grad_x.narrow(0, first, rows);
        ops_.LinearBackwardInput(logit_rows, weight, /*add=*/false, grad_rows, products);
        ops_.RmsNormBackward(grad_rows, x_rows, norm, epsilon_, /*residual=*/at::Tensor(), add_x, grad_x_rows,
                             add_norm || first > 0, grad_norm, norm_work);
      }
    };
  }

  BoundPass BindBackward(BoundTensors&) const override {
    throw std::logic_error("the forward of a head in chunks writes its gradients");
  }
};

}  // namespace

std::unique_ptr<Node> MakeHeadNode(const NodeContext& context) {
  if (context.shapes.logit_rows < context.shapes.tokens) {
    return std::make_unique<ChunkedHeadNode>(context);
  }
  return std::make_unique<HeadNode>(context);
}

}  // namespace tandem::model
