// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/model/autograd_decoder.h"

namespace tandem::model::test {
namespace {

// Row t of silu of a causal convolution of read, [S, channels], from row `start` on. conv: [channels, width].
at::Tensor Convolved(const at::Tensor& read, const at::Tensor& conv, const at::Tensor& bias, int64_t start,
                     int64_t t) {
  at::Tensor sum = bias;
  for (int64_t j = 0; j < conv.size(1); ++j) {
    const int64_t from = t - conv.size(1) + 1 + j;
    sum = from < start ? sum : sum + conv.select(1, j) * read[from];
  }
  return at::silu(sum);
}

}  // namespace

// Token by token: a convolution and a recurrence as their formulas have them.
at::Tensor AutogradDecoder::Mamba(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const MambaMixer& m = config_.mamba;
  const std::string prefix = LayerPrefix(layer) + "mamba.";
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const int64_t inner = m.heads * m.head_dim;
  const int64_t channels = inner + 2 * m.groups * m.state;
  const at::Tensor projected = Project(Norm(x, LayerPrefix(layer) + "mamba_layernorm"), prefix + "in_proj")
                                   .view({sequences, length, -1});
  const at::Tensor read = projected.narrow(2, inner, channels);
  const at::Tensor conv = Of(prefix + "conv1d.weight").view({channels, m.conv_width});
  const at::Tensor dt = at::softplus(projected.narrow(2, inner + channels, m.heads) + Of(prefix + "dt_bias"))
                            .clamp_min(m.least_step);
  const at::Tensor decays = (-dt * Of(prefix + "A_log").exp()).exp();
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    at::Tensor state;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t start = StartOf(tokens, sequence, t);
      if (t == start) {
        state = at::zeros({m.heads, m.head_dim, m.state}, at::kDouble);
      }
      const at::Tensor xbc = Convolved(read[sequence], conv, Of(prefix + "conv1d.bias"), start, t);
      const auto vectors = [&](int64_t first) {  // [heads, 1, state]
        return xbc.narrow(0, first, m.groups * m.state)
            .view({m.groups, 1, m.state})
            .repeat_interleave(m.heads / m.groups, 0);
      };
      const at::Tensor own = xbc.narrow(0, 0, inner).view({m.heads, m.head_dim, 1});
      const auto of_heads = [&](const at::Tensor& numbers) { return numbers.view({m.heads, 1, 1}); };
      state = state * of_heads(decays[sequence][t]) + own * of_heads(dt[sequence][t]) * vectors(inner);
      const at::Tensor y = (state * vectors(inner + m.groups * m.state)).sum(2, /*keepdim=*/true) +
                           own * of_heads(Of(prefix + "D"));
      rows.push_back(y.reshape({inner}));
    }
  }
  const at::Tensor gated = (at::stack(rows) * at::silu(projected.narrow(2, 0, inner).reshape({-1, inner})))
                               .view({-1, m.groups, inner / m.groups});
  const at::Tensor normed =
      (gated * (gated.square().mean(-1, true) + config_.rms_norm_eps).rsqrt()).view({-1, inner});
  return x + Project(normed * Of(prefix + "norm.weight"), prefix + "out_proj") * config_.residual_multiplier;
}

// Token by token, as Qwen3-Next has it.
at::Tensor AutogradDecoder::GatedDelta(int layer, const at::Tensor& x, const at::Tensor& tokens) const {
  const GatedDeltaNet& d = config_.delta;
  const std::string prefix = LayerPrefix(layer) + "linear_attn.";
  const int64_t sequences = tokens.size(0);
  const int64_t length = LengthOf(tokens);
  const int64_t share = d.value_heads / d.key_heads;
  const int64_t keys = d.key_heads * d.key_dim;
  const int64_t values = d.value_heads * d.value_dim;
  const at::Tensor normed = Norm(x, LayerPrefix(layer) + "linear_attn_layernorm");
  const at::Tensor qkvz =
      Project(normed, prefix + "in_proj_qkvz")
          .view({sequences, length, d.key_heads, 2 * d.key_dim + 2 * share * d.value_dim});
  const at::Tensor ba =
      Project(normed, prefix + "in_proj_ba").view({sequences, length, d.key_heads, 2 * share});
  const auto columns = [&](int64_t first, int64_t count) {
    return qkvz.narrow(3, first, count).reshape({sequences, length, -1});
  };
  const at::Tensor read = at::cat(
      {columns(0, d.key_dim), columns(d.key_dim, d.key_dim), columns(2 * d.key_dim, share * d.value_dim)}, 2);
  const at::Tensor z = columns(2 * d.key_dim + share * d.value_dim, share * d.value_dim)
                           .reshape({-1, d.value_heads, d.value_dim});
  const auto gates = [&](int64_t first) {
    return ba.narrow(3, first, share).reshape({sequences, length, d.value_heads});
  };
  const at::Tensor beta = at::sigmoid(gates(0));
  const at::Tensor decays =
      (-Of(prefix + "A_log").exp() * at::softplus(gates(share) + Of(prefix + "dt_bias"))).exp();
  const at::Tensor conv = Of(prefix + "conv1d.weight").view({2 * keys + values, d.conv_width});
  const auto of_length_one = [](const at::Tensor& rows) {
    return rows * (rows.square().sum(-1, /*keepdim=*/true) + 1e-6).rsqrt();
  };
  std::vector<at::Tensor> rows;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    at::Tensor state;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t start = StartOf(tokens, sequence, t);
      if (t == start) {
        state = at::zeros({d.value_heads, d.key_dim, d.value_dim}, at::kDouble);
      }
      const at::Tensor convolved =
          Convolved(read[sequence], conv, at::zeros({2 * keys + values}, at::kDouble), start, t);
      const auto of_keys = [&](int64_t first) {  // [value heads, key_dim, 1]
        return of_length_one(convolved.narrow(0, first, keys).view({d.key_heads, d.key_dim}))
            .repeat_interleave(share, 0)
            .unsqueeze(2);
      };
      const at::Tensor q = of_keys(0) / std::sqrt(static_cast<double>(d.key_dim));
      const at::Tensor k = of_keys(keys);
      const at::Tensor v = convolved.narrow(0, 2 * keys, values).view({d.value_heads, 1, d.value_dim});
      state = state * decays[sequence][t].view({d.value_heads, 1, 1});
      const at::Tensor missed = v - (state * k).sum(1, /*keepdim=*/true);
      state = state + k * (beta[sequence][t].view({d.value_heads, 1, 1}) * missed);
      rows.push_back((state * q).sum(1));
    }
  }
  const at::Tensor y = at::stack(rows);  // [tokens, value heads, value_dim]
  const at::Tensor gated = y * (y.square().mean(-1, /*keepdim=*/true) + config_.rms_norm_eps).rsqrt() *
                           Of(prefix + "norm.weight") * at::silu(z);
  return x + Project(gated.reshape({-1, values}), prefix + "out_proj");
}

}  // namespace tandem::model::test
