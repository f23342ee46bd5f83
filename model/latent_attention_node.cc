// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/latent_heads.h"

namespace tandem::model {
namespace {

// The epsilon of the narrow vectors' norms: Hugging Face's models take it whatever rms_norm_eps is.
constexpr double kLatentNormEpsilon = 1e-6;

// Arrays have the names of latent_attention.cc. The gradient of a frozen matrix is not defined.
class LatentAttentionNode final : public DeclaredNode {
 public:
  explicit LatentAttentionNode(const NodeContext& context)
      : DeclaredNode(context),
        shape_(s_.attention()),
        heads_(s_.latent_heads()),
        narrow_query_(s_.latent.query_rank > 0) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  // A recompute leaves out what was kept, from the end.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array documents = DocumentStarts(in);
    const ops::Array hidden = in.Value("hidden");
    const ops::Array down = in.Value("down");
    const ops::Array qkv = in.Value("qkv");
    const ops::Array context = in.Value("context");
    const ops::Array lse = in.Value("lse");
    const ops::Array key_value_down_norm = in.Parameter("key_value_down_norm");
    const ops::Array key_value_up = in.Parameter("key_value_up");
    const ops::Array output = in.Parameter("output");
    const ops::Array weight_query = in.Parameter(narrow_query_ ? "query_up" : "query");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array query = in.Scratch("query");
    const ops::Array kv_latent = in.Scratch("kv_latent");
    const ops::Array kv_normed = in.Scratch("kv_normed");
    const ops::Array key_value = in.Scratch("key_value");
    const ops::Array values = in.Scratch("values");
    const ops::Workspace work = in.Work("work");
    const ops::Workspace products = in.Work("products");
    ops::Array query_input = normed;
    ops::Call norm_query = [] {};
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), norms_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("key_value_down"), /*residual=*/{}, down, products));
    if (narrow_query_) {
      const ops::Array query_down = in.Value("query_down");
      query_input = in.Scratch("query_normed");
      calls.Add(ops_.Linear(normed, in.Parameter("query_down"), /*residual=*/{}, query_down, products));
      norm_query =
          ops_.RmsNorm(query_down, in.Parameter("query_down_norm"), {kLatentNormEpsilon}, query_input);
    }
    if (!qkv.defined()) {
      return calls;
    }
    calls.Add(norm_query);
    calls.Add(ops_.Linear(query_input, weight_query, /*residual=*/{}, query, products));
    NormLatent(down, key_value_down_norm, kv_latent, kv_normed, calls);
    calls.Add(ops_.Linear(kv_normed, key_value_up, /*residual=*/{}, key_value, products));
    calls.Add(ops_.PackLatentHeads(heads_, query, key_value, down, qkv));
    calls.Add(ops_.Rope(tables_->cosines.array, tables_->sines.array, 2 * s_.heads, s_.head_dim, qkv));
    if (!context.defined()) {
      return calls;
    }
    calls.Add(ops_.Attention(shape_, qkv, documents, context, lse, work));
    if (!hidden.defined()) {
      return calls;
    }
    calls.Add(ops_.Copy(ValuesIn(context), ValuesOf(values)));
    calls.Add(ops_.Linear(values, output, /*residual=*/x, hidden, products));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array qkv = in.Value("qkv");
    const ops::Array context = in.Value("context");
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array norm = in.Parameter("norm");
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array values = in.Scratch("values");
    const ops::Array grad_context = in.Scratch("grad_context");
    const ops::Array grad_qkv = in.Scratch("grad_qkv");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardInput(grad_hidden, in.Parameter("output"), /*add=*/false, values, products));
    calls.Add(ops_.Fill(0, grad_context));
    calls.Add(ops_.Copy(ValuesOf(values), ValuesIn(grad_context)));
    if (in.HasParameterGradient("output")) {
      calls.Add(ops_.Copy(ValuesIn(context), ValuesOf(values)));
    }
    AddMatrixGradient("output", grad_hidden, values, in, calls);
    calls.Add(ops_.AttentionBackward(shape_, qkv, DocumentStarts(in), context, in.Value("lse"), grad_context,
                                     grad_qkv, in.Work("work")));
    calls.Add(
        ops_.RopeBackward(tables_->cosines.array, tables_->sines.array, 2 * s_.heads, s_.head_dim, grad_qkv));
    calls.Add(ops_.UnpackLatentHeads(heads_, grad_qkv, in.Scratch("grad_query"), in.Scratch("grad_key_value"),
                                     in.Scratch("grad_down")));
    calls.Add(ops_.RmsNorm(x, norm, norms_, in.Scratch("normed")));
    AddKeyValue(in, calls);
    AddQuery(in, calls);
    calls.Add(ops_.Add(in.Scratch("grad_share"), grad_normed));
    calls.Add(ops_.RmsNormBackward(grad_normed, x, norm, norms_, /*residual=*/grad_hidden,
                                   in.AddsToGradient("x"), in.Gradient("x"), add,
                                   in.ParameterGradient("norm"), in.Work("norm_work")));
    return calls;
  }

  // From grad_key_value and the rotary columns of grad_down to grad_normed.
  void AddKeyValue(BoundArrays& in, ops::Calls& calls) const {
    const ops::Array norm = in.Parameter("key_value_down_norm");
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Array grad_key_value = in.Scratch("grad_key_value");
    const ops::Array grad_down = in.Scratch("grad_down");
    const ops::Array latent = in.Scratch("kv_latent");
    const ops::Array latent_normed = in.Scratch("kv_normed");
    const ops::Array grad_latent_normed = in.Scratch("grad_kv_normed");
    const ops::Array grad_latent = in.Scratch("grad_kv_latent");
    const ops::Workspace products = in.Work("products");
    NormLatent(in.Value("down"), norm, latent, latent_normed, calls);
    AddMatrixGradient("key_value_up", grad_key_value, latent_normed, in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_key_value, in.Parameter("key_value_up"), /*add=*/false,
                                       grad_latent_normed, products));
    calls.Add(ops_.RmsNormBackward(grad_latent_normed, latent, norm, {kLatentNormEpsilon}, /*residual=*/{},
                                   /*add_x=*/false, grad_latent, add,
                                   in.ParameterGradient("key_value_down_norm"), in.Work("latent_norm_work")));
    calls.Add(ops_.Copy(grad_latent, grad_down.Columns(0, s_.latent.kv_rank)));
    AddMatrixGradient("key_value_down", grad_down, in.Scratch("normed"), in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_down, in.Parameter("key_value_down"), /*add=*/false,
                                       in.Scratch("grad_normed"), products));
  }

  // From grad_query to grad_share.
  void AddQuery(BoundArrays& in, ops::Calls& calls) const {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array grad_share = in.Scratch("grad_share");
    const ops::Array grad_query = in.Scratch("grad_query");
    const ops::Workspace products = in.Work("products");
    if (!narrow_query_) {
      AddMatrixGradient("query", grad_query, normed, in, calls);
      calls.Add(
          ops_.LinearBackwardInput(grad_query, in.Parameter("query"), /*add=*/false, grad_share, products));
      return;
    }
    const ops::Array down = in.Value("query_down");
    const ops::Array norm = in.Parameter("query_down_norm");
    const ops::Array query_normed = in.Scratch("query_normed");
    const ops::Array grad_query_normed = in.Scratch("grad_query_normed");
    const ops::Array grad_down = in.Scratch("grad_query_down");
    if (in.HasParameterGradient("query_up")) {
      calls.Add(ops_.RmsNorm(down, norm, {kLatentNormEpsilon}, query_normed));
    }
    AddMatrixGradient("query_up", grad_query, query_normed, in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_query, in.Parameter("query_up"), /*add=*/false, grad_query_normed,
                                       products));
    calls.Add(ops_.RmsNormBackward(grad_query_normed, down, norm, {kLatentNormEpsilon}, /*residual=*/{},
                                   /*add_x=*/false, grad_down, add, in.ParameterGradient("query_down_norm"),
                                   in.Work("latent_norm_work")));
    AddMatrixGradient("query_down", grad_down, normed, in, calls);
    calls.Add(
        ops_.LinearBackwardInput(grad_down, in.Parameter("query_down"), /*add=*/false, grad_share, products));
  }

  void NormLatent(const ops::Array& down, const ops::Array& norm, const ops::Array& latent,
                  const ops::Array& normed, ops::Calls& calls) const {
    calls.Add(ops_.Copy(down.Columns(0, s_.latent.kv_rank), latent));
    calls.Add(ops_.RmsNorm(latent, norm, {kLatentNormEpsilon}, normed));
  }

  // [T heads, value_head_dim], of heads of values alone, and of a context's, which hold zeros behind them.
  ops::Array ValuesOf(const ops::Array& values) const {
    return values.Reshaped(s_.tokens * s_.heads, s_.latent.value_head_dim);
  }
  ops::Array ValuesIn(const ops::Array& context) const {
    return context.Reshaped(s_.tokens * s_.heads, s_.head_dim).Columns(0, s_.latent.value_head_dim);
  }

  const ops::AttentionShape shape_;
  const ops::LatentHeads heads_;
  const bool narrow_query_;
};

}  // namespace

std::unique_ptr<Node> MakeLatentAttentionNode(const NodeContext& context) {
  return std::make_unique<LatentAttentionNode>(context);
}

}  // namespace tandem::model
