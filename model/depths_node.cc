// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of depths.cc.
class DepthInputNode final : public SplitNode {
 public:
  explicit DepthInputNode(const NodeContext& context)
      : SplitNode(context),
        ahead_(s_.depth),
        rows_(s_.length - s_.depth),
        trains_x_(!s_.config.depths.detached || s_.depth > 1),
        trains_embedded_(!s_.config.depths.detached) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array both = in.Scratch("both");
    ops::Calls calls;
    AddNorms(in.Value("x"), in.Value("embedded"), both, in, calls);
    calls.Add(ops_.Linear(both, in.Parameter("projection"), /*residual=*/{}, in.Value("hidden"),
                          in.Work("products")));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array embedded = in.Value("embedded");
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array projection = in.Parameter("projection");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_x = trains_x_ ? in.Gradient("x") : in.Scratch("unread");
    const ops::Array grad_embedded = trains_embedded_ ? in.Gradient("embedded") : in.Scratch("unread");
    const bool adds_x = trains_x_ && in.AddsToGradient("x");
    const bool adds_embedded = trains_embedded_ && in.AddsToGradient("embedded");
    const ops::Workspace norm_work = in.Work("norm_work");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    AddNorms(x, embedded, in.Value("both"), in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_hidden, projection.Columns(0, s_.hidden), /*add=*/false,
                                       grad_normed, products));
    const ops::Array embedding_norm = in.Parameter("embedding_norm");
    const ops::Array grad_embedding_norm = in.Value("grad_embedding_norm");
    for (int64_t first = 0; first < s_.tokens; first += s_.length) {
      if (!adds_embedded) {
        calls.Add(ops_.Fill(0, grad_embedded.Rows(first, ahead_)));
      }
      calls.Add(ops_.RmsNormBackward(grad_normed.Rows(first, rows_), embedded.Rows(first + ahead_, rows_),
                                     embedding_norm, norms_, /*residual=*/{}, adds_embedded,
                                     grad_embedded.Rows(first + ahead_, rows_), /*add_weight=*/first > 0,
                                     grad_embedding_norm, norm_work));
    }
    calls.Add(ops_.LinearBackwardInput(grad_hidden, projection.Columns(s_.hidden, s_.hidden), /*add=*/false,
                                       grad_normed, products));
    calls.Add(ops_.RmsNormBackward(grad_normed, x, in.Parameter("hidden_norm"), norms_, /*residual=*/{},
                                   adds_x, grad_x, /*add_weight=*/false, in.Value("grad_hidden_norm"),
                                   norm_work));
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    ops::Calls calls;
    AddMatrixGradient("projection", in.Gradient("hidden"), in.Value("both"), in, calls);
    AddVectorGradients(in, calls);
    return calls;
  }

  // both = [embedding_norm(embedded, some tokens ahead); hidden_norm(x)], computed through "normed".
  void AddNorms(const ops::Array& x, const ops::Array& embedded, const ops::Array& both, BoundArrays& in,
                ops::Calls& calls) const {
    const ops::Array normed = in.Scratch("normed");
    const ops::Array norm = in.Parameter("embedding_norm");
    for (int64_t first = 0; first < s_.tokens; first += s_.length) {
      calls.Add(ops_.RmsNorm(embedded.Rows(first + ahead_, rows_), norm, norms_, normed.Rows(first, rows_)));
      calls.Add(ops_.Fill(0, normed.Rows(first + rows_, ahead_)));
    }
    calls.Add(ops_.Copy(normed, both.Columns(0, s_.hidden)));
    calls.Add(ops_.RmsNorm(x, in.Parameter("hidden_norm"), norms_, normed));
    calls.Add(ops_.Copy(normed, both.Columns(s_.hidden, s_.hidden)));
  }

  const int64_t ahead_;  // tokens
  const int64_t rows_;   // rows of a sequence with a token so far ahead
  const bool trains_x_;
  const bool trains_embedded_;
};

class NormNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    return ops_.RmsNorm(in.Value("x"), in.Parameter("norm"), norms_, in.Value("hidden"));
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    return ops_.RmsNormBackward(in.Gradient("hidden"), in.Value("x"), in.Parameter("norm"), norms_,
                                /*residual=*/{}, in.AddsToGradient("x"), in.Gradient("x"),
                                in.AddsToParameterGradient("norm"), in.ParameterGradient("norm"),
                                in.Work("norm_work"));
  }
};

}  // namespace

std::unique_ptr<Node> MakeDepthInputNode(const NodeContext& context) {
  return std::make_unique<DepthInputNode>(context);
}

std::unique_ptr<Node> MakeDepthNormNode(const NodeContext& context) {
  return std::make_unique<NormNode>(context);
}

}  // namespace tandem::model
