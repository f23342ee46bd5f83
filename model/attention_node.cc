// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {

namespace {

// Arrays have the names of attention.cc; arrays that a model does not have are undefined.
class AttentionNode final : public SplitNode {
 public:
  explicit AttentionNode(const NodeContext& context) : SplitNode(context), shape_(s_.attention()) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  // A recompute leaves out, from the end, what was kept.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array qkv = in.Value("qkv");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array context = in.Value("context");
    const ops::Array lse = in.Value("lse");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array weight_output = in.Parameter("output");
    const ops::Array output_bias = s_.output_bias ? in.Parameter("output_bias") : ops::Array();
    const ops::Array normed = in.Scratch("normed");
    const ops::Array projected = s_.norms_after ? in.Scratch("projected") : ops::Array();
    const ops::Array attended = s_.gates_attention ? in.Scratch("gated") : context;
    const ops::Workspace work = in.Work("work");
    const ops::Workspace products = in.Work("products");
    const Heads heads = HeadsOf(in, qkv);
    const Starts starts = StartsOf(in);
    ops::Calls calls;
    if (!s_.norms_after) {
      calls.Add(ops_.RmsNorm(x, norm, norms_, normed));
    }
    calls.Add(ops_.Linear(s_.norms_after ? x : normed, in.Parameter("qkv"), /*residual=*/{}, qkv, products));
    if (s_.qkv_bias) {
      calls.Add(ops_.QkvBias(in.Parameter("query_bias"), in.Parameter("key_bias"), in.Parameter("value_bias"),
                             qkv));
    }
    if (!s_.norms_qk) {
      Rotate(qkv, /*sign=*/1, calls);
    }
    if (!context.defined()) {
      return calls;
    }
    NormAndRotate(heads, qkv, calls);
    AddStarts(starts, calls);
    calls.Add(ops_.Attention(shape_, heads.rotated, starts.seen, context, lse, work));
    if (!hidden.defined()) {
      return calls;
    }
    if (s_.gates_attention) {
      calls.Add(ops_.OutputGate(context, qkv, s_.heads, attended));
    }
    if (s_.norms_after) {
      calls.Add(ops_.Linear(attended, weight_output, /*residual=*/{}, projected, products));
      AddBias(output_bias, projected, calls);
      AddNormed(projected, x, norm, normed, hidden, calls);
    } else {
      calls.Add(
          ops_.Linear(attended, weight_output, /*residual=*/x, hidden, products, s_.residual_multiplier));
      AddBias(output_bias, hidden, calls);
    }
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array qkv = in.Value("qkv");
    const ops::Array context = in.Value("context");
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array grad_qkv = in.Value("grad_qkv");
    const ops::Array weight_output = in.Parameter("output");
    const ops::Array output_bias = s_.output_bias ? in.Parameter("output_bias") : ops::Array();
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_context = in.Scratch("grad_context");
    const ops::Array grad_attended = s_.gates_attention ? in.Scratch("grad_attended") : grad_qkv;
    const ops::Workspace products = in.Work("products");
    const Heads heads = HeadsOf(in, qkv);
    const Starts starts = StartsOf(in);
    ops::Calls calls;
    ops::Array grad_projected = grad_hidden;
    if (s_.norms_after) {
      const ops::Array projected = in.Scratch("projected");
      grad_projected = in.Value("grad_projected");
      calls.Add(ops_.Linear(context, weight_output, /*residual=*/{}, projected, products));
      AddBias(output_bias, projected, calls);
      AddNormedBackward(grad_hidden, projected, grad_projected, in, calls);
    }
    calls.Add(ops_.LinearBackwardInput(grad_projected, weight_output, /*add=*/false, grad_context, products,
                                       s_.residual_multiplier));
    if (s_.gates_attention) {
      calls.Add(ops_.OutputGateBackward(grad_context, context, qkv, s_.heads, in.Value("gated"), grad_context,
                                        grad_qkv));
    }
    NormAndRotate(heads, qkv, calls);
    AddStarts(starts, calls);
    calls.Add(ops_.AttentionBackward(shape_, heads.rotated, starts.seen, context, in.Value("lse"),
                                     grad_context, grad_attended, in.Work("work")));
    Rotate(grad_attended, /*sign=*/-1, calls);
    if (s_.norms_heads) {
      calls.Add(ops_.HeadNormBackward(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, norms_,
                                      /*add_weights=*/false, grad_attended, in.Value("grad_query_norm"),
                                      in.Value("grad_key_norm"), in.Work("head_norm_work"),
                                      s_.gates_attention ? grad_qkv : ops::Array()));
    } else if (s_.norms_whole) {
      const ops::Workspace work = in.Work("whole_norm_work");
      WholeNormBackward(heads, 0, s_.query, qkv, heads.query_norm, grad_context, grad_qkv,
                        in.Value("grad_query_norm"), work, calls);
      WholeNormBackward(heads, s_.query, s_.key, qkv, heads.key_norm, grad_context, grad_qkv,
                        in.Value("grad_key_norm"), work, calls);
    }
    if (s_.gates_attention) {
      calls.Add(ops_.Copy(grad_attended.Columns(s_.query + s_.key, s_.key),
                          grad_qkv.Columns(s_.projected_qkv - s_.key, s_.key)));
    }
    calls.Add(ops_.LinearBackwardInput(grad_qkv, in.Parameter("qkv"), /*add=*/false, grad_normed, products));
    if (s_.norms_after) {
      AddResidualBackward(grad_normed, grad_hidden, in, calls);
    } else {
      AddNormBackward(grad_normed, in, calls);
    }
    for (const char* const name : {"query_bias", "key_bias", "value_bias"}) {
      if (s_.qkv_bias) {
        in.Parameter(name);  // may be there, with its part, but is not read
      }
    }
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Array grad_qkv = in.Value("grad_qkv");
    ops::Calls calls;
    const ops::Array grad_projected = s_.norms_after ? in.Value("grad_projected") : in.Gradient("hidden");
    AddMatrixGradient("output", grad_projected, in.Value(s_.gates_attention ? "gated" : "context"), in, calls,
                      s_.residual_multiplier);
    AddMatrixGradient("qkv", grad_qkv, in.Value(s_.norms_after ? "x" : "normed"), in, calls);
    const ops::Workspace bias_work = s_.qkv_bias || s_.output_bias ? in.Work("bias_work") : ops::Workspace();
    if (s_.qkv_bias) {
      calls.Add(ops_.QkvBiasBackward(grad_qkv, add, in.ParameterGradient("query_bias"),
                                     in.ParameterGradient("key_bias"), in.ParameterGradient("value_bias"),
                                     bias_work));
    }
    if (s_.output_bias) {
      calls.Add(ops_.BiasBackward(grad_projected, add, in.ParameterGradient("output_bias"), bias_work));
    }
    AddVectorGradients(in, calls);
    return calls;
  }

  void AddBias(const ops::Array& bias, const ops::Array& rows, ops::Calls& calls) const {
    if (bias.defined()) {
      calls.Add(ops_.Bias(bias, rows));
    }
  }

  // The input of attention: qkv itself, which is kept rotated; or if queries and keys are normalised, heads
  // made of qkv, which is kept as it was projected.
  struct Heads {
    ops::Array query_norm, key_norm, rotated;
    ops::Array whole, whole_normed;  // if all heads are normalised together
  };
  Heads HeadsOf(BoundArrays& in, const ops::Array& qkv) const {
    Heads heads{.rotated = qkv};
    if (s_.norms_qk) {
      heads = {.query_norm = in.Parameter("query_norm"),
               .key_norm = in.Parameter("key_norm"),
               .rotated = in.Scratch("rotated")};
    }
    if (s_.norms_whole) {
      heads.whole = in.Scratch("whole");
      heads.whole_normed = in.Scratch("whole_normed");
    }
    return heads;
  }

  void NormAndRotate(const Heads& heads, const ops::Array& qkv, ops::Calls& calls) const {
    if (s_.norms_heads) {
      calls.Add(
          ops_.HeadNorm(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, norms_, heads.rotated));
    } else if (s_.norms_whole) {
      WholeNorm(heads, 0, s_.query, qkv, heads.query_norm, calls);
      WholeNorm(heads, s_.query, s_.key, qkv, heads.key_norm, calls);
      const int64_t values = s_.query + s_.key;
      calls.Add(ops_.Copy(qkv.Columns(values, s_.key), heads.rotated.Columns(values, s_.key)));
    } else {
      return;
    }
    Rotate(heads.rotated, /*sign=*/1, calls);
  }

  // Views the begin of a matrix of T rows as a matrix with so many columns.
  ops::Array OfColumns(const ops::Array& matrix, int64_t columns) const {
    return {matrix.begin, matrix.type, matrix.on, s_.tokens, columns};
  }

  // Normalises the columns of all query heads, or of all key heads.
  void WholeNorm(const Heads& heads, int64_t first, int64_t columns, const ops::Array& qkv,
                 const ops::Array& weight, ops::Calls& calls) const {
    const ops::Array whole = OfColumns(heads.whole, columns);
    const ops::Array normed = OfColumns(heads.whole_normed, columns);
    calls.Add(ops_.Copy(qkv.Columns(first, columns), whole));
    calls.Add(ops_.RmsNorm(whole, weight, norms_, normed));
    calls.Add(ops_.Copy(normed, heads.rotated.Columns(first, columns)));
  }

  // Converts the gradient of normed columns to that of the columns before the norm, in place. memory: [T,
  // query].
  void WholeNormBackward(const Heads& heads, int64_t first, int64_t columns, const ops::Array& qkv,
                         const ops::Array& weight, const ops::Array& memory, const ops::Array& grad_qkv,
                         const ops::Array& grad_weight, ops::Workspace work, ops::Calls& calls) const {
    const ops::Array whole = OfColumns(heads.whole, columns);
    const ops::Array grad_normed = OfColumns(heads.whole_normed, columns);
    const ops::Array grad_whole = OfColumns(memory, columns);
    calls.Add(ops_.Copy(qkv.Columns(first, columns), whole));
    calls.Add(ops_.Copy(grad_qkv.Columns(first, columns), grad_normed));
    calls.Add(ops_.RmsNormBackward(grad_normed, whole, weight, norms_, /*residual=*/{}, /*add_x=*/false,
                                   grad_whole, /*add_weight=*/false, grad_weight, work));
    calls.Add(ops_.Copy(grad_whole, grad_qkv.Columns(first, columns)));
  }

  // sign: -1 for a gradient.
  void Rotate(const ops::Array& qkv, int sign, ops::Calls& calls) const {
    if (s_.rotates) {
      calls.Add(ops_.Rope(tables_->cosines.array, tables_->sines.array, s_.heads + s_.kv_heads, s_.head_dim,
                          qkv, sign));
    }
  }

  // The first rows to which rows attend: those of their documents or, if there is a window, those that the
  // window leaves.
  struct Starts {
    ops::Array documents, seen;
  };
  Starts StartsOf(BoundArrays& in) const {
    const ops::Array documents = DocumentStarts(in);
    return {documents, s_.windowed ? in.Scratch("starts") : documents};
  }
  void AddStarts(const Starts& starts, ops::Calls& calls) const {
    if (s_.windowed) {
      calls.Add(ops_.WindowStarts(s_.window, starts.documents, starts.seen));
    }
  }

  const ops::AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Node> MakeAttentionNode(const NodeContext& context) {
  return std::make_unique<AttentionNode>(context);
}

}  // namespace tandem::model
