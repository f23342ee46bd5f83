// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of depth_norm.cc.
class NormNode final : public DeclaredNode {
 public:
  NormNode(const NodeContext& context, const NodeKind& kind)
      : DeclaredNode(context, kind.declare(context.shapes)) {}

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

std::unique_ptr<Node> MakeMainNormNode(const NodeContext& context) {
  return std::make_unique<NormNode>(context, kMainNorm);
}

std::unique_ptr<Node> MakeDepthNormNode(const NodeContext& context) {
  return std::make_unique<NormNode>(context, kDepthNorm);
}

}  // namespace tandem::model
