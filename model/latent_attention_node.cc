// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <utility>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/latent_heads.h"

namespace tandem::model {
namespace {

// The epsilon of the narrow vectors' norms: Hugging Face's DeepseekV3RMSNorm takes it whatever rms_norm_eps
// is.
constexpr double kLatentNormEpsilon = 1e-6;

// Tensors have the names of latent_attention.cc. What belongs to a narrow query is undefined where there is
// none, and so is the gradient of a frozen matrix.
class LatentAttentionNode final : public DeclaredNode {
 public:
  LatentAttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : DeclaredNode(context, kLatentAttention.declare(context.shapes)),
        tables_(std::move(tables)),
        shape_(s_.attention()),
        heads_(s_.latent_heads()),
        narrow_query_(s_.latent.query_rank > 0) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  // A recompute leaves out what was kept, from the end.
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), documents = DocumentStarts(in), hidden = in.Value("hidden"),
            down = in.Value("down"), qkv = in.Value("qkv"), context = in.Value("context"),
            lse = in.Value("lse"), query_down = narrow_query_ ? in.Value("query_down") : at::Tensor(),
            norm = in.Parameter("norm"), key_value_down = in.Parameter("key_value_down"),
            key_value_down_norm = in.Parameter("key_value_down_norm"),
            key_value_up = in.Parameter("key_value_up"), output = in.Parameter("output"),
            weight_query_down = narrow_query_ ? in.Parameter("query_down") : at::Tensor(),
            query_down_norm = narrow_query_ ? in.Parameter("query_down_norm") : at::Tensor(),
            weight_query = in.Parameter(narrow_query_ ? "query_up" : "query"), normed = in.Scratch("normed"),
            query = in.Scratch("query"), kv_latent = in.Scratch("kv_latent"),
            kv_normed = in.Scratch("kv_normed"), key_value = in.Scratch("key_value"),
            values = in.Scratch("values"),
            query_normed = narrow_query_ ? in.Scratch("query_normed") : at::Tensor(), work = in.Work("work"),
            products = in.Work("products")]() mutable {
      ops_.RmsNorm(x, norm, epsilon_, normed);
      ops_.Linear(normed, key_value_down, /*residual=*/at::Tensor(), down, products);
      if (narrow_query_) {
        ops_.Linear(normed, weight_query_down, /*residual=*/at::Tensor(), query_down, products);
      }
      if (!qkv.defined()) {
        return;
      }
      if (narrow_query_) {
        ops_.RmsNorm(query_down, query_down_norm, kLatentNormEpsilon, query_normed);
      }
      ops_.Linear(narrow_query_ ? query_normed : normed, weight_query, /*residual=*/at::Tensor(), query,
                  products);
      NormLatent(down, key_value_down_norm, kv_latent, kv_normed);
      ops_.Linear(kv_normed, key_value_up, /*residual=*/at::Tensor(), key_value, products);
      ops_.PackLatentHeads(heads_, query, key_value, down, qkv);
      ops_.Rope(*tables_->cosines, *tables_->sines, 2 * s_.heads, qkv);
      if (!context.defined()) {
        return;
      }
      ops_.Attention(shape_, qkv, documents, context, lse, work);
      if (!hidden.defined()) {
        return;
      }
      ValuesOf(values).copy_(ValuesIn(context));
      ops_.Linear(values, output, /*residual=*/x, hidden, products);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return
        [this, key_value = BindKeyValue(in), query = BindQuery(in), x = in.Value("x"),
         documents = DocumentStarts(in), qkv = in.Value("qkv"), context = in.Value("context"),
         lse = in.Value("lse"), grad_hidden = in.Gradient("hidden"), grad_x = in.Gradient("x"),
         add_x = in.AddsToGradient("x"), norm = in.Parameter("norm"), output = in.Parameter("output"),
         grad_norm = in.ParameterGradient("norm"), grad_output = in.ParameterGradient("output"),
         add = in.AddsToParameterGradient("norm"), normed = in.Scratch("normed"),
         grad_normed = in.Scratch("grad_normed"), grad_share = in.Scratch("grad_share"),
         values = in.Scratch("values"), grad_context = in.Scratch("grad_context"),
         grad_qkv = in.Scratch("grad_qkv"), grad_query = in.Scratch("grad_query"),
         grad_key_value = in.Scratch("grad_key_value"), grad_down = in.Scratch("grad_down"),
         work = in.Work("work"), norm_work = in.Work("norm_work"), products = in.Work("products")]() mutable {
          ops_.LinearBackwardInput(grad_hidden, output, /*add=*/false, values, products);
          grad_context.zero_();
          ValuesIn(grad_context).copy_(ValuesOf(values));
          if (grad_output.defined()) {
            ValuesOf(values).copy_(ValuesIn(context));
            ops_.LinearBackwardWeight(grad_hidden, values, add, grad_output, products);
          }
          ops_.AttentionBackward(shape_, qkv, documents, context, lse, grad_context, grad_qkv, work);
          ops_.RopeBackward(*tables_->cosines, *tables_->sines, 2 * s_.heads, grad_qkv);
          ops_.UnpackLatentHeads(heads_, grad_qkv, grad_query, grad_key_value, grad_down);
          ops_.RmsNorm(x, norm, epsilon_, normed);
          key_value();
          query();
          grad_normed.add_(grad_share);
          ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/grad_hidden, add_x, grad_x, add,
                               grad_norm, norm_work);
        };
  }

  // From grad_key_value and the rotary columns of grad_down to grad_normed.
  BoundPass BindKeyValue(BoundTensors& in) const {
    return [this, down = in.Value("down"), weight_down = in.Parameter("key_value_down"),
            norm = in.Parameter("key_value_down_norm"), weight_up = in.Parameter("key_value_up"),
            grad_weight_down = in.ParameterGradient("key_value_down"),
            grad_norm = in.ParameterGradient("key_value_down_norm"),
            grad_weight_up = in.ParameterGradient("key_value_up"), add = in.AddsToParameterGradient("norm"),
            normed = in.Scratch("normed"), grad_normed = in.Scratch("grad_normed"),
            grad_key_value = in.Scratch("grad_key_value"), grad_down = in.Scratch("grad_down"),
            latent = in.Scratch("kv_latent"), latent_normed = in.Scratch("kv_normed"),
            grad_latent_normed = in.Scratch("grad_kv_normed"), grad_latent = in.Scratch("grad_kv_latent"),
            norm_work = in.Work("latent_norm_work"), products = in.Work("products")]() mutable {
      NormLatent(down, norm, latent, latent_normed);
      if (grad_weight_up.defined()) {
        ops_.LinearBackwardWeight(grad_key_value, latent_normed, add, grad_weight_up, products);
      }
      ops_.LinearBackwardInput(grad_key_value, weight_up, /*add=*/false, grad_latent_normed, products);
      ops_.RmsNormBackward(grad_latent_normed, latent, norm, kLatentNormEpsilon, /*residual=*/at::Tensor(),
                           /*add_x=*/false, grad_latent, add, grad_norm, norm_work);
      grad_down.narrow(1, 0, s_.latent.kv_rank).copy_(grad_latent);
      if (grad_weight_down.defined()) {
        ops_.LinearBackwardWeight(grad_down, normed, add, grad_weight_down, products);
      }
      ops_.LinearBackwardInput(grad_down, weight_down, /*add=*/false, grad_normed, products);
    };
  }

  // From grad_query to grad_share.
  BoundPass BindQuery(BoundTensors& in) const {
    const bool add = in.AddsToParameterGradient("norm");
    if (!narrow_query_) {
      return [this, add, weight = in.Parameter("query"), grad_weight = in.ParameterGradient("query"),
              normed = in.Scratch("normed"), grad_share = in.Scratch("grad_share"),
              grad_query = in.Scratch("grad_query"), products = in.Work("products")]() mutable {
        if (grad_weight.defined()) {
          ops_.LinearBackwardWeight(grad_query, normed, add, grad_weight, products);
        }
        ops_.LinearBackwardInput(grad_query, weight, /*add=*/false, grad_share, products);
      };
    }
    return [this, add, down = in.Value("query_down"), weight_down = in.Parameter("query_down"),
            norm = in.Parameter("query_down_norm"), weight_up = in.Parameter("query_up"),
            grad_weight_down = in.ParameterGradient("query_down"),
            grad_norm = in.ParameterGradient("query_down_norm"),
            grad_weight_up = in.ParameterGradient("query_up"), normed = in.Scratch("normed"),
            grad_share = in.Scratch("grad_share"), grad_query = in.Scratch("grad_query"),
            query_normed = in.Scratch("query_normed"), grad_query_normed = in.Scratch("grad_query_normed"),
            grad_down = in.Scratch("grad_query_down"), norm_work = in.Work("latent_norm_work"),
            products = in.Work("products")]() mutable {
      if (grad_weight_up.defined()) {
        ops_.RmsNorm(down, norm, kLatentNormEpsilon, query_normed);
        ops_.LinearBackwardWeight(grad_query, query_normed, add, grad_weight_up, products);
      }
      ops_.LinearBackwardInput(grad_query, weight_up, /*add=*/false, grad_query_normed, products);
      ops_.RmsNormBackward(grad_query_normed, down, norm, kLatentNormEpsilon, /*residual=*/at::Tensor(),
                           /*add_x=*/false, grad_down, add, grad_norm, norm_work);
      if (grad_weight_down.defined()) {
        ops_.LinearBackwardWeight(grad_down, normed, add, grad_weight_down, products);
      }
      ops_.LinearBackwardInput(grad_down, weight_down, /*add=*/false, grad_share, products);
    };
  }

  void NormLatent(const at::Tensor& down, const at::Tensor& norm, at::Tensor& latent,
                  at::Tensor& normed) const {
    latent.copy_(down.narrow(1, 0, s_.latent.kv_rank));
    ops_.RmsNorm(latent, norm, kLatentNormEpsilon, normed);
  }

  // [T, heads, value_head_dim], of heads of values alone, and of a context's, which hold zeros behind them.
  at::Tensor ValuesOf(const at::Tensor& values) const {
    return values.view({s_.tokens, s_.heads, s_.latent.value_head_dim});
  }
  at::Tensor ValuesIn(const at::Tensor& context) const {
    return context.view({s_.tokens, s_.heads, s_.head_dim}).narrow(2, 0, s_.latent.value_head_dim);
  }

  const std::shared_ptr<const RotaryTables> tables_;
  const ops::AttentionShape shape_;
  const ops::LatentHeads heads_;
  const bool narrow_query_;
};

}  // namespace

std::unique_ptr<Node> MakeLatentAttentionNode(const NodeContext& context,
                                              std::shared_ptr<const RotaryTables> tables) {
  return std::make_unique<LatentAttentionNode>(context, std::move(tables));
}

}  // namespace tandem::model
