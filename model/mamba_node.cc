// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of mamba.cc.
class MambaNode final : public SplitNode {
 public:
  using SplitNode::SplitNode;

 private:
  // A recompute leaves out, from the end, what was kept.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array projected = in.Value("projected");
    const ops::Array y = in.Value("y");
    const ops::Array states = in.Value("states");
    const ops::Array gate_norm = in.Parameter("gate_norm");
    const ops::Array out_proj = in.Parameter("out_proj");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array gated = in.Scratch("gated");
    const ops::Workspace scan_work = in.Work("scan_work");
    const ops::Workspace products = in.Work("products");
    const ops::ScanInputs scan = ScanOf(projected, in);
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), norms_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("in_proj"), /*residual=*/{}, projected, products));
    const ops::Call convolve = Convolve(projected, scan, in);
    if (!y.defined()) {
      return calls;
    }
    calls.Add(convolve);
    calls.Add(ops_.StateScan(s_.scan, scan, y, states, scan_work));
    if (!hidden.defined()) {
      return calls;
    }
    calls.Add(ops_.GatedNorm(y, GateIn(projected), gate_norm, s_.scan.groups, norms_.epsilon, gated));
    calls.Add(ops_.Linear(gated, out_proj, /*residual=*/x, hidden, products, s_.residual_multiplier));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array projected = in.Value("projected");
    const ops::Array y = in.Value("y");
    const ops::Array gate_norm = in.Parameter("gate_norm");
    const ops::Array grad_projected = in.Value("grad_projected");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_gated = in.Scratch("grad_gated");
    const ops::Array grad_y = in.Scratch("grad_y");
    const ops::Array grad_xbc = in.Scratch("grad_xbc");
    const ops::Workspace products = in.Work("products");
    const ops::ScanInputs scan = ScanOf(projected, in);
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardInput(in.Gradient("hidden"), in.Parameter("out_proj"), /*add=*/false,
                                       grad_gated, products, s_.residual_multiplier));
    calls.Add(
        ops_.GatedNorm(y, GateIn(projected), gate_norm, s_.scan.groups, norms_.epsilon, in.Value("gated")));
    calls.Add(ops_.GatedNormBackward(grad_gated, y, GateIn(projected), gate_norm, s_.scan.groups,
                                     norms_.epsilon, grad_y, GateIn(grad_projected),
                                     in.Value("grad_gate_norm"), in.Work("gate_work")));
    calls.Add(Convolve(projected, scan, in));
    calls.Add(ops_.StateScanBackward(s_.scan, scan, in.Value("states"), grad_y, grad_xbc,
                                     StepsIn(grad_projected), in.Value("grad_dt_bias"),
                                     in.Value("grad_a_log"), in.Value("grad_d"), in.Work("scan_work")));
    calls.Add(ops_.CausalConvBackward(s_.sequences, ConvolvedIn(projected), scan.documents,
                                      in.Parameter("conv"), in.Parameter("conv_bias"), grad_xbc,
                                      ConvolvedIn(grad_projected), in.Value("grad_conv"),
                                      in.Value("grad_conv_bias"), in.Work("conv_work")));
    calls.Add(ops_.LinearBackwardInput(grad_projected, in.Parameter("in_proj"), /*add=*/false, grad_normed,
                                       products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    ops::Calls calls;
    AddMatrixGradient("out_proj", in.Gradient("hidden"), in.Value("gated"), in, calls,
                      s_.residual_multiplier);
    AddMatrixGradient("in_proj", in.Value("grad_projected"), in.Value("normed"), in, calls);
    AddVectorGradients(in, calls);
    return calls;
  }

  // The input of the scan, of which the convolution must compute xbc first.
  ops::ScanInputs ScanOf(const ops::Array& projected, BoundArrays& in) const {
    return {.xbc = in.Scratch("xbc"),
            .steps = StepsIn(projected),
            .dt_bias = in.Parameter("dt_bias"),
            .a_log = in.Parameter("a_log"),
            .d = in.Parameter("d"),
            .documents = DocumentStarts(in)};
  }

  ops::Call Convolve(const ops::Array& projected, const ops::ScanInputs& scan, BoundArrays& in) const {
    return ops_.CausalConv(s_.sequences, ConvolvedIn(projected), scan.documents, in.Parameter("conv"),
                           in.Parameter("conv_bias"), scan.xbc);
  }

  // Columns of the result of Win, or of its gradient.
  ops::Array GateIn(const ops::Array& projected) const { return projected.Columns(0, s_.scan.inner()); }
  ops::Array ConvolvedIn(const ops::Array& projected) const {
    return projected.Columns(s_.scan.inner(), s_.scan.channels());
  }
  ops::Array StepsIn(const ops::Array& projected) const {
    return projected.Columns(s_.scan.inner() + s_.scan.channels(), s_.scan.heads);
  }
};

}  // namespace

std::unique_ptr<Node> MakeMambaNode(const NodeContext& context) {
  return std::make_unique<MambaNode>(context);
}

}  // namespace tandem::model
