// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/permute.h"

namespace tandem::model {
namespace {

// One column: of each slot or row.
at::Tensor Column(const at::Tensor& probabilities) { return probabilities.view({-1, 1}); }

class PermuteNode final : public DeclaredNode {
 public:
  explicit PermuteNode(const NodeContext& context) : DeclaredNode(context, DeclarePermute(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [normed = in.Value("normed"), chosen = in.Value("chosen"),
            probabilities = Column(in.Value("probabilities")), rows = in.Value("rows"),
            row_probabilities = in.Value("row_probabilities"), row_of = in.Value("row_of"),
            counts = in.Value("counts")]() mutable {
      if (!row_of.defined()) {
        return;  // all was kept
      }
      ops::PlanRows(chosen, counts, row_of);
      if (rows.defined()) {
        ops::Permute(normed, row_of, rows);
      }
      if (row_probabilities.defined()) {
        ops::Permute(probabilities, row_of, row_probabilities);
      }
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return
        [row_of = in.Value("row_of"), grad_rows = in.Gradient("rows"),
         grad_row_probabilities = in.Gradient("row_probabilities"), grad_normed = in.Gradient("normed"),
         add_normed = in.AddsToGradient("normed"), grad_probabilities = Column(in.Gradient("probabilities")),
         add_probabilities = in.AddsToGradient("probabilities")]() mutable {
          ops::Unpermute(grad_rows, row_of, add_normed, grad_normed);
          ops::Unpermute(grad_row_probabilities, row_of, add_probabilities, grad_probabilities);
        };
  }
};

}  // namespace

std::unique_ptr<Node> MakePermuteNode(const NodeContext& context) {
  return std::make_unique<PermuteNode>(context);
}

}  // namespace tandem::model
