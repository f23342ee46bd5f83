// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of depth_head.cc. Rows of logits are those that something is predicted from, without
// gaps; those of x have gaps behind each sequence.
class DepthHead : public DeclaredNode {
 public:
  DepthHead(const NodeContext& context, const NodeKind& kind)
      : DeclaredNode(context, kind.declare(context.shapes)),
        predicted_(context.shapes.predicted()),
        weight_(context.shapes.depth > 0
                    ? context.config.depths.loss_weight / static_cast<double>(context.config.depths.number)
                    : 1) {}

 protected:
  ops::Array Targets(BoundArrays& in) const {
    return in.Value("tokens").Columns(s_.batch.targets_column() + s_.depth, s_.length - s_.depth);
  }

  // The gradient of rows that nothing is predicted from.
  void FillRest(const ops::Array& grad_x, ops::Calls& calls) const {
    const int64_t rest = predicted_.stride - predicted_.length;
    for (int64_t run = 0; rest > 0 && run < predicted_.runs; ++run) {
      calls.Add(ops_.Fill(0, grad_x.Rows(run * predicted_.stride + predicted_.length, rest)));
    }
  }

  const PredictedRows predicted_;
  const double weight_;  // of the loss, in what is trained
};

class WholeDepthHeadNode final : public DepthHead {
 public:
  using DepthHead::DepthHead;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array weight = in.Parameter("weight");
    const ops::Array logits = in.Value("grad_logits");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    for (int64_t run = 0; run < predicted_.runs; ++run) {
      calls.Add(ops_.Linear(x.Rows(run * predicted_.stride, predicted_.length), weight, /*residual=*/{},
                            logits.Rows(run * predicted_.length, predicted_.length), products));
    }
    calls.Add(ops_.CrossEntropy(logits, Targets(in), in.Scratch("lse"), in.Value("loss"),
                                /*grad_logits=*/logits, weight_));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array grad_logits = in.Value("grad_logits");
    const ops::Array weight = in.Parameter("weight");
    const ops::Array grad_x = in.Gradient("x");
    const bool add_x = in.AddsToGradient("x");
    const ops::Array grad_weight = in.ParameterGradient("weight");
    const bool add_weight = in.AddsToParameterGradient("weight");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    for (int64_t run = 0; run < predicted_.runs; ++run) {
      const ops::Array of_run = grad_logits.Rows(run * predicted_.length, predicted_.length);
      if (grad_weight.defined()) {
        calls.Add(ops_.LinearBackwardWeight(of_run, x.Rows(run * predicted_.stride, predicted_.length),
                                            add_weight || run > 0, grad_weight, products));
      }
      calls.Add(ops_.LinearBackwardInput(of_run, weight, add_x,
                                         grad_x.Rows(run * predicted_.stride, predicted_.length), products));
    }
    if (!add_x) {
      FillRest(grad_x, calls);
    }
    return calls;
  }
};

class ChunkedDepthHeadNode final : public DepthHead {
 public:
  using DepthHead::DepthHead;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array targets = Targets(in);
    const ops::Array loss = in.Value("loss");
    const ops::Array weight = in.Parameter("weight");
    const ops::Array grad_x = in.Gradient("x");
    const bool add_x = in.AddsToGradient("x");
    const ops::Array grad_weight = in.ParameterGradient("weight");
    const bool add_weight = in.AddsToParameterGradient("weight");
    const ops::Array logits = in.Scratch("logits");
    const ops::Array lse = in.Scratch("lse");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    for (int64_t run = 0; run < predicted_.runs; ++run) {
      for (int64_t in_run = 0; in_run < predicted_.length; in_run += s_.logit_rows) {
        const int64_t rows = std::min(s_.logit_rows, predicted_.length - in_run);
        const int64_t first = run * predicted_.length + in_run;  // among what is predicted
        const ops::Array x_rows = x.Rows(run * predicted_.stride + in_run, rows);
        const ops::Array logit_rows = logits.Rows(0, rows);
        calls.Add(ops_.Linear(x_rows, weight, /*residual=*/{}, logit_rows, products));
        calls.Add(ops_.CrossEntropyChunk(logit_rows, targets, first, lse, loss, /*grad_logits=*/logit_rows,
                                         weight_));
        if (!grad_x.defined()) {  // a validation
          continue;
        }
        if (grad_weight.defined()) {
          calls.Add(
              ops_.LinearBackwardWeight(logit_rows, x_rows, add_weight || first > 0, grad_weight, products));
        }
        calls.Add(ops_.LinearBackwardInput(logit_rows, weight, add_x,
                                           grad_x.Rows(run * predicted_.stride + in_run, rows), products));
      }
    }
    if (grad_x.defined() && !add_x) {
      FillRest(grad_x, calls);
    }
    return calls;
  }

  BoundPass BindBackward(BoundArrays&) const override {
    throw std::logic_error("the forward of a head in chunks writes its gradients");
  }
};

std::unique_ptr<Node> MakeHead(const NodeContext& context, const NodeKind& kind) {
  if (context.shapes.logit_rows < context.shapes.tokens) {
    return std::make_unique<ChunkedDepthHeadNode>(context, kind);
  }
  return std::make_unique<WholeDepthHeadNode>(context, kind);
}

}  // namespace

std::unique_ptr<Node> MakeHeadOfNormedNode(const NodeContext& context) {
  return MakeHead(context, kHeadOfNormed);
}

std::unique_ptr<Node> MakeDepthHeadNode(const NodeContext& context) { return MakeHead(context, kDepthHead); }

}  // namespace tandem::model
