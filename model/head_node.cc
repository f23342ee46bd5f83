// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of head.cc. Rows of logits are those from which something is predicted, without
// gaps; in a depth, such rows of x have gaps after each sequence.
class HeadNode final : public DeclaredNode {
 public:
  explicit HeadNode(const NodeContext& context)
      : DeclaredNode(context),
        normalises_(context.node.kind == &kHead),
        in_chunks_(s_.logit_rows < s_.tokens),
        weight_(s_.depth > 0 ? s_.config.depths.loss_weight / static_cast<double>(s_.config.depths.number)
                             : 1),
        predicted_(s_.predicted()) {
    for (int64_t run = 0; run < predicted_.runs; ++run) {
      for (int64_t in_run = 0; in_run < predicted_.length; in_run += s_.logit_rows) {
        chunks_.push_back({.first = run * predicted_.length + in_run,
                           .first_of_x = run * predicted_.stride + in_run,
                           .rows = std::min(s_.logit_rows, predicted_.length - in_run)});
      }
    }
  }

 private:
  // Rows whose logits are one product.
  struct Chunk {
    int64_t first = 0;
    int64_t first_of_x = 0;
    int64_t rows = 0;
  };

  // The arrays that are read, and those that are computed from them and from the gradient of logits.
  struct Arrays {
    ops::Array x, weight, norm, normed;
    ops::Workspace products;
  };
  struct Gradients {
    ops::Array x, weight, norm, normed;
    bool add_x = false;
    bool add_weight = false;
    bool add_norm = false;
    ops::Workspace norm_work;
  };

  BoundPass BindForward(BoundArrays& in) const override {
    const Arrays arrays = ArraysOf(in);
    const Gradients gradients = in_chunks_ ? GradientsOf(in) : Gradients();
    const ops::Array targets =
        in.Value("tokens").Columns(s_.batch.targets_column() + s_.depth, s_.length - s_.depth);
    const ops::Array loss = in.Value("loss");
    const ops::Array lse = in.Scratch("lse");
    const ops::Array logits = in_chunks_ ? in.Scratch("logits") : in.Value("grad_logits");
    ops::Calls calls;
    for (const Chunk& chunk : chunks_) {
      const ops::Array of_chunk = logits.Rows(in_chunks_ ? 0 : chunk.first, chunk.rows);
      const ops::Array read = Read(chunk, arrays);
      if (normalises_) {
        calls.Add(ops_.RmsNorm(XOf(chunk, arrays.x), arrays.norm, norms_, read));
      }
      calls.Add(
          ops_.Linear(read, arrays.weight, /*residual=*/{}, of_chunk, arrays.products, s_.logits_multiplier));
      if (in_chunks_) {
        calls.Add(ops_.CrossEntropyChunk(of_chunk, targets, chunk.first, lse, loss, /*grad_logits=*/of_chunk,
                                         weight_));
      }
      if (gradients.x.defined()) {  // not defined in a validation
        AddGradients(chunk, of_chunk, arrays, gradients, calls);
      }
    }
    if (gradients.x.defined()) {
      FillRest(gradients, calls);
    }
    if (!in_chunks_) {
      calls.Add(ops_.CrossEntropy(logits, targets, lse, loss, /*grad_logits=*/logits, weight_));
    }
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const Arrays arrays = ArraysOf(in);
    const Gradients gradients = GradientsOf(in);
    const ops::Array grad_logits = in.Value("grad_logits");
    ops::Calls calls;
    for (const Chunk& chunk : chunks_) {
      if (normalises_ && gradients.weight.defined()) {
        calls.Add(ops_.RmsNorm(XOf(chunk, arrays.x), arrays.norm, norms_, Read(chunk, arrays)));
      }
      AddGradients(chunk, grad_logits.Rows(chunk.first, chunk.rows), arrays, gradients, calls);
    }
    FillRest(gradients, calls);
    return calls;
  }

  Arrays ArraysOf(BoundArrays& in) const {
    Arrays arrays{.x = in.Value("x"), .weight = in.Parameter("weight"), .products = in.Work("products")};
    if (normalises_) {
      arrays.norm = in.Parameter("norm");
      arrays.normed = in.Scratch("normed");
    }
    return arrays;
  }

  Gradients GradientsOf(BoundArrays& in) const {
    Gradients gradients{.x = in.Gradient("x"),
                        .weight = in.ParameterGradient("weight"),
                        .add_x = in.AddsToGradient("x"),
                        .add_weight = in.AddsToParameterGradient("weight")};
    if (normalises_) {
      gradients.norm = in.ParameterGradient("norm");
      gradients.normed = in.Scratch("grad_normed");
      gradients.add_norm = in.AddsToParameterGradient("norm");
      gradients.norm_work = in.Work("norm_work");
    }
    return gradients;
  }

  static ops::Array XOf(const Chunk& chunk, const ops::Array& x) {
    return x.Rows(chunk.first_of_x, chunk.rows);
  }

  // Returns the input of the product.
  ops::Array Read(const Chunk& chunk, const Arrays& arrays) const {
    return normalises_ ? arrays.normed.Rows(0, chunk.rows) : XOf(chunk, arrays.x);
  }

  // Adds the gradients that follow from those of a chunk's logits.
  void AddGradients(const Chunk& chunk, const ops::Array& grad_logits, const Arrays& arrays,
                    const Gradients& gradients, ops::Calls& calls) const {
    if (gradients.weight.defined()) {
      calls.Add(ops_.LinearBackwardWeight(grad_logits, Read(chunk, arrays),
                                          gradients.add_weight || chunk.first > 0, gradients.weight,
                                          arrays.products, s_.logits_multiplier));
    }
    const ops::Array grad_x = XOf(chunk, gradients.x);
    const ops::Array grad_read = normalises_ ? gradients.normed.Rows(0, chunk.rows) : grad_x;
    calls.Add(ops_.LinearBackwardInput(grad_logits, arrays.weight, !normalises_ && gradients.add_x, grad_read,
                                       arrays.products, s_.logits_multiplier));
    if (normalises_) {
      calls.Add(ops_.RmsNormBackward(grad_read, XOf(chunk, arrays.x), arrays.norm, norms_, /*residual=*/{},
                                     gradients.add_x, grad_x, gradients.add_norm || chunk.first > 0,
                                     gradients.norm, gradients.norm_work));
    }
  }

  // Clears the gradient of rows from which nothing is predicted.
  void FillRest(const Gradients& gradients, ops::Calls& calls) const {
    const int64_t rest = predicted_.stride - predicted_.length;
    for (int64_t run = 0; rest > 0 && !gradients.add_x && run < predicted_.runs; ++run) {
      calls.Add(ops_.Fill(0, gradients.x.Rows(run * predicted_.stride + predicted_.length, rest)));
    }
  }

  const bool normalises_;
  const bool in_chunks_;
  const double weight_;  // of the loss in the sum that is trained
  const PredictedRows predicted_;
  std::vector<Chunk> chunks_;
};

}  // namespace

std::unique_ptr<Node> MakeHeadNode(const NodeContext& context) { return std::make_unique<HeadNode>(context); }

}  // namespace tandem::model
