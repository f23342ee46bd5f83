// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of gated_delta.cc.
class GatedDeltaNode final : public SplitNode {
 public:
  using SplitNode::SplitNode;

 private:
  // Queries, keys or values: a matrix of each, their place among a key head's results of Wqkvz, and their
  // channels in the convolution.
  struct Share {
    const char* name;
    int64_t first_column;
    int64_t columns;
    int64_t first_channel;
  };
  std::vector<Share> Shares() const {
    const ops::DeltaShape& d = s_.delta;
    return {{"q", 0, d.key_dim, 0},
            {"k", d.key_dim, d.key_dim, d.keys()},
            {"v", 2 * d.key_dim, d.share() * d.value_dim, 2 * d.keys()}};
  }

  // A recompute leaves out, from the end, what was kept.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array projected = in.Value("projected");
    const ops::Array ba = in.Value("ba");
    const ops::Array y = in.Value("y");
    const ops::Array states = in.Value("states");
    const ops::Array gate_norm = in.Parameter("gate_norm");
    const ops::Array out_proj = in.Parameter("out_proj");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array gated = in.Scratch("gated");
    const ops::Workspace delta_work = in.Work("delta_work");
    const ops::Workspace products = in.Work("products");
    const ops::DeltaInputs delta = InputsOf(ba, in);
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), norms_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("in_qkvz"), /*residual=*/{}, projected, products));
    calls.Add(ops_.Linear(normed, in.Parameter("in_ba"), /*residual=*/{}, ba, products));
    ops::Calls convolutions;
    AddConvolutions(projected, delta, in, convolutions);
    if (!y.defined()) {
      return calls;
    }
    calls.Add(convolutions);
    calls.Add(ops_.GatedDelta(s_.delta, delta, y, states, delta_work));
    if (!hidden.defined()) {
      return calls;
    }
    calls.Add(ops_.NormGate(OfHeads(y), GateIn(projected), gate_norm, norms_.epsilon, OfHeads(gated)));
    calls.Add(ops_.Linear(gated, out_proj, /*residual=*/x, hidden, products));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array projected = in.Value("projected");
    const ops::Array y = in.Value("y");
    const ops::Array gate_norm = in.Parameter("gate_norm");
    const ops::Array grad_projected = in.Value("grad_projected");
    const ops::Array grad_ba = in.Value("grad_ba");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_gated = in.Scratch("grad_gated");
    const ops::Array grad_y = in.Scratch("grad_y");
    const ops::Workspace products = in.Work("products");
    const ops::DeltaInputs delta = InputsOf(in.Value("ba"), in);
    const ops::DeltaGradients grads{.q = in.Scratch("grad_q"),
                                    .k = in.Scratch("grad_k"),
                                    .v = in.Scratch("grad_v"),
                                    .ba = grad_ba,
                                    .dt_bias = in.Value("grad_dt_bias"),
                                    .a_log = in.Value("grad_a_log")};
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardInput(in.Gradient("hidden"), in.Parameter("out_proj"), /*add=*/false,
                                       grad_gated, products));
    calls.Add(
        ops_.NormGate(OfHeads(y), GateIn(projected), gate_norm, norms_.epsilon, OfHeads(in.Value("gated"))));
    calls.Add(ops_.NormGateBackward(OfHeads(grad_gated), OfHeads(y), GateIn(projected), gate_norm,
                                    norms_.epsilon, OfHeads(grad_y), GateIn(grad_projected),
                                    in.Value("grad_gate_norm"), in.Work("gate_work")));
    AddConvolutions(projected, delta, in, calls);
    calls.Add(
        ops_.GatedDeltaBackward(s_.delta, delta, in.Value("states"), grad_y, grads, in.Work("delta_work")));
    AddConvolutionBackwards(grad_projected, delta, grads, in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_projected, in.Parameter("in_qkvz"), /*add=*/false, grad_normed,
                                       products));
    calls.Add(ops_.LinearBackwardInput(grad_ba, in.Parameter("in_ba"), /*add=*/true, grad_normed, products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const ops::Array normed = in.Value("normed");
    ops::Calls calls;
    AddMatrixGradient("out_proj", in.Gradient("hidden"), in.Value("gated"), in, calls);
    AddMatrixGradient("in_qkvz", in.Value("grad_projected"), normed, in, calls);
    AddMatrixGradient("in_ba", in.Value("grad_ba"), normed, in, calls);
    AddVectorGradients(in, calls);
    return calls;
  }

  // The input of the recurrence, of which the convolution must compute q, k and v first.
  ops::DeltaInputs InputsOf(const ops::Array& ba, BoundArrays& in) const {
    return {.q = in.Scratch("q"),
            .k = in.Scratch("k"),
            .v = in.Scratch("v"),
            .ba = ba,
            .dt_bias = in.Parameter("dt_bias"),
            .a_log = in.Parameter("a_log"),
            .documents = DocumentStarts(in)};
  }

  // Takes queries, keys and values from the results of Wqkvz, and convolves them.
  void AddConvolutions(const ops::Array& projected, const ops::DeltaInputs& delta, BoundArrays& in,
                       ops::Calls& calls) const {
    const ops::Array conv = in.Parameter("conv");
    for (const Share& share : Shares()) {
      const ops::Array read = in.Scratch(std::string("read_") + share.name);
      const ops::Array to = in.Scratch(share.name);
      calls.Add(
          ops_.Copy(Heads(projected, share), read.Reshaped(s_.tokens * s_.delta.key_heads, share.columns)));
      calls.Add(ops_.CausalConv(s_.sequences, read, delta.documents, OfChannels(conv, share, read),
                                /*bias=*/{}, to));
    }
  }

  // The gradient of a convolution's input replaces its output, which is not read any more.
  void AddConvolutionBackwards(const ops::Array& grad_projected, const ops::DeltaInputs& delta,
                               const ops::DeltaGradients& grads, BoundArrays& in, ops::Calls& calls) const {
    const ops::Array conv = in.Parameter("conv");
    const ops::Array grad_conv = in.Value("grad_conv");
    const ops::Workspace work = in.Work("conv_work");
    const ops::Array of_outputs[] = {grads.q, grads.k, grads.v};
    int i = 0;
    for (const Share& share : Shares()) {
      const ops::Array read = in.Scratch(std::string("read_") + share.name);
      const ops::Array grad_read = in.Scratch(share.name);
      calls.Add(ops_.CausalConvBackward(s_.sequences, read, delta.documents, OfChannels(conv, share, read),
                                        /*bias=*/{}, of_outputs[i++], grad_read,
                                        OfChannels(grad_conv, share, read), /*grad_bias=*/{}, work));
      calls.Add(ops_.Copy(grad_read.Reshaped(s_.tokens * s_.delta.key_heads, share.columns),
                          Heads(grad_projected, share)));
    }
  }

  // [T · Hk, ...]: views the result of Wqkvz, or its gradient.
  ops::Array ByKeyHead(const ops::Array& projected) const {
    return projected.Reshaped(s_.tokens * s_.delta.key_heads, s_.delta.head_columns());
  }
  ops::Array Heads(const ops::Array& projected, const Share& share) const {
    return ByKeyHead(projected).Columns(share.first_column, share.columns);
  }
  ops::Array GateIn(const ops::Array& projected) const {
    const int64_t values = s_.delta.share() * s_.delta.value_dim;
    return ByKeyHead(projected).Columns(2 * s_.delta.key_dim + values, values);
  }
  // [T · Hv, Dv]
  ops::Array OfHeads(const ops::Array& values) const {
    return values.Reshaped(s_.tokens * s_.delta.value_heads, s_.delta.value_dim);
  }
  ops::Array OfChannels(const ops::Array& conv, const Share& share, const ops::Array& read) const {
    return conv.Rows(share.first_channel, read.columns);
  }
};

}  // namespace

std::unique_ptr<Node> MakeGatedDeltaNode(const NodeContext& context) {
  return std::make_unique<GatedDeltaNode>(context);
}

}  // namespace tandem::model
