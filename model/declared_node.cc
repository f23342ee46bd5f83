// SPDX-License-Identifier: Apache-2.0
#include "model/declared_node.h"

#include <algorithm>
#include <utility>

#include "model/bound_arrays.h"

namespace tandem::model {

DeclaredPasses::DeclaredPasses(const NodeContext& context)
    : s_(context.shapes),
      types_(context.types),
      ops_(context.ops),
      norms_{s_.config.rms_norm_eps, s_.config.norms_add_one ? 1.0 : 0.0},
      tables_(context.tables),
      declaration_(DeclarationOf(context.node, s_)) {}

BoundPass DeclaredPasses::Bind(Pass pass, absl::Span<const OperandMemory> operands,
                               comm::Communicator* communicator) const {
  BoundArrays arrays(declaration_, pass, operands, types_, ops_, communicator);
  BoundPass code = BindPass(pass, arrays);
  arrays.CheckAllUsed();
  return arrays.WithConversions(std::move(code));
}

ops::Array DeclaredPasses::DocumentStarts(BoundArrays& in) const {
  if (!s_.packs_documents) {
    return {};
  }
  return in.Value("tokens").Columns(s_.batch.starts_column(), s_.length);
}

ops::Array DeclaredPasses::Targets(BoundArrays& in) const {
  return in.Value("tokens").Columns(s_.batch.targets_column(), s_.length);
}

void DeclaredPasses::AddMatrixGradient(const std::string& matrix, const ops::Array& grad,
                                       const ops::Array& read, BoundArrays& in, ops::Calls& calls,
                                       double scale) const {
  const ops::Array to = in.ParameterGradient(matrix);
  const ops::Workspace products = in.Work("products");
  if (to.defined()) {
    calls.Add(ops_.LinearBackwardWeight(grad, read, in.AddsToParameterGradient(matrix), to, products, scale));
  }
}

BoundPass DeclaredNode::BindPass(Pass pass, BoundArrays& in) const {
  return pass == Pass::kBackwardInput ? BindBackward(in) : BindForward(in);
}

BoundPass SplitNode::BindPass(Pass pass, BoundArrays& in) const {
  switch (pass) {
    case Pass::kBackwardInput:
      return BindBackwardInput(in);
    case Pass::kBackwardWeight:
      return BindBackwardWeight(in);
    default:
      return BindForward(in);
  }
}

void SplitNode::AddNormBackward(const ops::Array& grad_normed, BoundArrays& in, ops::Calls& calls) const {
  const ops::Array x = in.Value("x");
  const ops::Array norm = in.Parameter("norm");
  calls.Add(ops_.RmsNormBackward(grad_normed, x, norm, norms_, /*residual=*/in.Gradient("hidden"),
                                 in.AddsToGradient("x"), in.Gradient("x"), /*add_weight=*/false,
                                 in.Value("grad_norm"), in.Work("norm_work")));
  calls.Add(ops_.RmsNorm(x, norm, norms_, in.Value("normed")));
}

void SplitNode::AddNormed(const ops::Array& projected, const ops::Array& x, const ops::Array& norm,
                          const ops::Array& normed, const ops::Array& hidden, ops::Calls& calls) const {
  calls.Add(ops_.RmsNorm(projected, norm, norms_, normed));
  calls.Add(ops_.Copy(x, hidden));
  calls.Add(ops_.Add(normed, hidden));
}

void SplitNode::AddNormedBackward(const ops::Array& grad_hidden, const ops::Array& projected,
                                  const ops::Array& grad_projected, BoundArrays& in,
                                  ops::Calls& calls) const {
  calls.Add(ops_.RmsNormBackward(grad_hidden, projected, in.Parameter("norm"), norms_, /*residual=*/{},
                                 /*add_x=*/false, grad_projected, /*add_weight=*/false, in.Value("grad_norm"),
                                 in.Work("norm_work")));
}

void SplitNode::AddResidualBackward(const ops::Array& grad_share, const ops::Array& grad_hidden,
                                    BoundArrays& in, ops::Calls& calls) const {
  const ops::Array grad_x = in.Gradient("x");
  calls.Add(in.AddsToGradient("x") ? ops_.Add(grad_hidden, grad_x) : ops_.Copy(grad_hidden, grad_x));
  calls.Add(ops_.Add(grad_share, grad_x));
}

void SplitNode::AddVectorGradients(BoundArrays& in, ops::Calls& calls) const {
  for (const PartSpec& part : declaration_.parts) {
    for (const ParameterSpec& vector : part.parameters) {
      const auto computed = std::find_if(
          declaration_.intermediates.begin(), declaration_.intermediates.end(),
          [&](const TensorSpec& intermediate) { return intermediate.name == "grad_" + vector.name; });
      if (computed == declaration_.intermediates.end()) {
        continue;
      }
      const ops::Array from = in.Value(computed->name);
      const ops::Array to = in.ParameterGradient(vector.name);
      calls.Add(in.AddsToParameterGradient(vector.name) ? ops_.Add(from, to) : ops_.Copy(from, to));
    }
  }
}

}  // namespace tandem::model
