// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Tensors have the names of head.cc.

// [B, S] of [B, S + 1]: each token is predicted from those before it.
at::Tensor TargetsIn(const at::Tensor& tokens, int64_t length) { return tokens.narrow(1, 1, length); }

class HeadNode final : public DeclaredNode {
 public:
  explicit HeadNode(const NodeContext& context) : DeclaredNode(context, DeclareHead(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return
        [this, x = in.Value("x"), targets = TargetsIn(in.Value("tokens"), s_.length), loss = in.Value("loss"),
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

class BlockedHeadNode final : public DeclaredNode {
 public:
  explicit BlockedHeadNode(const NodeContext& context) : DeclaredNode(context, DeclareHead(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), targets = TargetsIn(in.Value("tokens"), s_.length),
            loss = in.Value("loss"), lse = in.Value("lse"), norm = in.Parameter("norm"),
            weight = in.Parameter("weight"), normed = in.Scratch("normed"), memory = in.Scratch("logits"),
            target_logits = in.Scratch("target_logits"), products = in.Work("products")]() mutable {
      ops_.RmsNorm(x, norm, epsilon_, normed);
      ForEachBlock(weight, memory, [&](int64_t first, const at::Tensor& rows, at::Tensor& logits) {
        ops_.Linear(normed, rows, /*residual=*/at::Tensor(), logits, products);
        ops_.CrossEntropyBlock(logits, targets, first, s_.vocabulary, lse, target_logits, loss);
      });
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    const at::Tensor grad_normed = in.Scratch("grad_normed");
    return [this, grad_normed, x = in.Value("x"), targets = TargetsIn(in.Value("tokens"), s_.length),
            lse = in.Value("lse"), grad_x = in.Gradient("x"), add_x = in.AddsToGradient("x"),
            norm = in.Parameter("norm"), weight = in.Parameter("weight"),
            grad_norm = in.ParameterGradient("norm"), grad_weight = in.ParameterGradient("weight"),
            add_norm = in.AddsToParameterGradient("norm"), add_weight = in.AddsToParameterGradient("weight"),
            normed = in.Scratch("normed"), memory = in.Scratch("logits"),
            grad_sums = s_.widens ? in.Scratch("grad_sums") : grad_normed, norm_work = in.Work("norm_work"),
            products = in.Work("products")]() mutable {
      ops_.RmsNorm(x, norm, epsilon_, normed);
      ForEachBlock(weight, memory, [&](int64_t first, const at::Tensor& rows, at::Tensor& logits) {
        ops_.Linear(normed, rows, /*residual=*/at::Tensor(), logits, products);
        ops_.CrossEntropyBlockBackward(targets, first, s_.vocabulary, lse, logits);
        if (grad_weight.defined()) {
          at::Tensor grad_rows = grad_weight.narrow(0, first, rows.size(0));
          ops_.LinearBackwardWeight(logits, normed, add_weight, grad_rows, products);
        }
        ops_.LinearBackwardInput(logits, rows, /*add=*/first > 0, grad_sums, products);
      });
      if (s_.widens) {
        grad_normed.copy_(grad_sums);
      }
      ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/at::Tensor(), add_x, grad_x, add_norm,
                           grad_norm, norm_work);
    };
  }

  // visit(first, the weight's rows of the block, memory for its logits): the last block may be narrower.
  template <typename Visit>
  void ForEachBlock(const at::Tensor& weight, const at::Tensor& memory, const Visit& visit) const {
    for (int64_t first = 0; first < s_.vocabulary; first += s_.logit_columns) {
      const int64_t columns = std::min(s_.logit_columns, s_.vocabulary - first);
      at::Tensor logits = memory.view({-1}).narrow(0, 0, s_.tokens * columns).view({s_.tokens, columns});
      visit(first, weight.narrow(0, first, columns), logits);
    }
  }
};

}  // namespace

std::unique_ptr<Node> MakeHeadNode(const NodeContext& context) {
  if (context.shapes.logit_columns > 0) {
    return std::make_unique<BlockedHeadNode>(context);
  }
  return std::make_unique<HeadNode>(context);
}

}  // namespace tandem::model
