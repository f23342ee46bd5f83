// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of head.cc.

class HeadNode final : public DeclaredNode {
 public:
  explicit HeadNode(const NodeContext& context) : DeclaredNode(context, kHead.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array logits = in.Value("grad_logits");
    const ops::Array normed = in.Scratch("normed");
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(in.Value("x"), in.Parameter("norm"), norms_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("weight"), /*residual=*/{}, logits, in.Work("products"),
                          s_.logits_multiplier));
    calls.Add(
        ops_.CrossEntropy(logits, Targets(in), in.Scratch("lse"), in.Value("loss"), /*grad_logits=*/logits));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array grad_logits = in.Value("grad_logits");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array grad_weight = in.ParameterGradient("weight");
    const bool add_weight = in.AddsToParameterGradient("weight");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    if (grad_weight.defined()) {
      calls.Add(ops_.RmsNorm(x, norm, norms_, normed));
      calls.Add(ops_.LinearBackwardWeight(grad_logits, normed, add_weight, grad_weight, products,
                                          s_.logits_multiplier));
    }
    calls.Add(ops_.LinearBackwardInput(grad_logits, in.Parameter("weight"), /*add=*/false, grad_normed,
                                       products, s_.logits_multiplier));
    calls.Add(ops_.RmsNormBackward(grad_normed, x, norm, norms_, /*residual=*/{}, in.AddsToGradient("x"),
                                   in.Gradient("x"), in.AddsToParameterGradient("norm"),
                                   in.ParameterGradient("norm"), in.Work("norm_work")));
    return calls;
  }
};

class ChunkedHeadNode final : public DeclaredNode {
 public:
  explicit ChunkedHeadNode(const NodeContext& context)
      : DeclaredNode(context, kHead.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array targets = Targets(in);
    const ops::Array loss = in.Value("loss");
    const ops::Array grad_x = in.Gradient("x");
    const bool add_x = in.AddsToGradient("x");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array weight = in.Parameter("weight");
    const ops::Array grad_norm = in.ParameterGradient("norm");
    const ops::Array grad_weight = in.ParameterGradient("weight");
    const bool add_norm = in.AddsToParameterGradient("norm");
    const bool add_weight = in.AddsToParameterGradient("weight");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array logits = in.Scratch("logits");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array lse = in.Scratch("lse");
    const ops::Workspace norm_work = in.Work("norm_work");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    for (int64_t first = 0; first < s_.tokens; first += s_.logit_rows) {
      const int64_t rows = std::min(s_.logit_rows, s_.tokens - first);
      const ops::Array x_rows = x.Rows(first, rows);
      const ops::Array normed_rows = normed.Rows(0, rows);
      const ops::Array logit_rows = logits.Rows(0, rows);
      calls.Add(ops_.RmsNorm(x_rows, norm, norms_, normed_rows));
      calls.Add(
          ops_.Linear(normed_rows, weight, /*residual=*/{}, logit_rows, products, s_.logits_multiplier));
      calls.Add(ops_.CrossEntropyChunk(logit_rows, targets, first, lse, loss, /*grad_logits=*/logit_rows));
      if (!grad_x.defined()) {  // a validation
        continue;
      }
      if (grad_weight.defined()) {
        calls.Add(ops_.LinearBackwardWeight(logit_rows, normed_rows, add_weight || first > 0, grad_weight,
                                            products, s_.logits_multiplier));
      }
      const ops::Array grad_rows = grad_normed.Rows(0, rows);
      calls.Add(ops_.LinearBackwardInput(logit_rows, weight, /*add=*/false, grad_rows, products,
                                         s_.logits_multiplier));
      calls.Add(ops_.RmsNormBackward(grad_rows, x_rows, norm, norms_, /*residual=*/{}, add_x,
                                     grad_x.Rows(first, rows), add_norm || first > 0, grad_norm, norm_work));
    }
    return calls;
  }

  BoundPass BindBackward(BoundArrays&) const override {
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
