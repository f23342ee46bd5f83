// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "bench/kernel_times.h"
#include "ops/attention_work.h"
#include "ops/cuda/operations.h"
#include "ops/operations.h"
#include "ops/tensors.h"
#include "ops/workspace.h"

namespace tandem::bench {

using ops::AttentionShape;
using ops::DeviceKind;

namespace {

// What the forward must compute: two products of a head's dims for each query and key that it attends to,
// those from its document's start (of the same shape as the positions) to itself. The backward has five.
double ForwardFlops(const AttentionShape& shape, const at::Tensor& positions, const at::Tensor& starts) {
  const auto pairs = static_cast<double>((positions - starts + 1).sum().item<int64_t>());
  return 4.0 * pairs * static_cast<double>(shape.context_columns());
}

}  // namespace

void TimeAttention(const AttentionShape& shape, const std::string& operation, const ShapeRows& rows) {
  const at::TensorOptions bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const AttentionShape& a = shape;
  const at::Tensor qkv = at::randn({a.tokens(), a.qkv_columns()}, bf16);
  const at::Tensor grad = at::randn({a.tokens(), a.context_columns()}, bf16);
  at::Tensor context = at::empty({a.tokens(), a.context_columns()}, bf16);
  at::Tensor lse = at::empty({a.sequences, a.heads, a.length}, bf16.dtype(at::kFloat));
  at::Tensor grad_qkv = at::empty_like(qkv);
  const ops::Operations& operations = ops::CudaOperations();
  AttentionShape within = a;
  within.documents = true;
  AttentionShape free = a;
  free.repeats = false;
  int64_t bytes = 0;
  for (const AttentionShape& form : {a, within, free}) {
    bytes = std::max({bytes, ops::AttentionWorkBytes(DeviceKind::kGpu, form, 2),
                      ops::AttentionBackwardWorkBytes(DeviceKind::kGpu, form, 2)});
  }
  at::Tensor memory = at::empty({bytes}, bf16.dtype(at::kByte));
  const ops::Workspace work{.begin = memory.mutable_data_ptr(), .bytes = bytes};

  const auto heads = [&](int64_t from, int64_t count) {
    return qkv.narrow(1, from * a.head_dim, count * a.head_dim)
        .view({a.sequences, a.length, count, a.head_dim})
        .transpose(1, 2);
  };
  const at::Tensor q = heads(0, a.heads);
  const at::Tensor k = heads(a.heads, a.kv_heads);
  const at::Tensor v = heads(a.heads + a.kv_heads, a.kv_heads);
  const auto forward = [&] {
    return at::_scaled_dot_product_cudnn_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, true);
  };
  // Of 500 tokens, so that the starts are not those of the kernels' tiles.
  const at::Tensor positions = at::arange(a.length, bf16.dtype(at::kLong)).repeat({a.sequences, 1});
  const at::Tensor starts = positions.floor_divide(500).mul(500);
  const double flops = ForwardFlops(a, positions, at::zeros_like(starts));
  const double flops_within = ForwardFlops(a, positions, starts);
  const auto ours = [&](const AttentionShape& form) {
    operations.PrepareAttention(form, 2);
    operations.Attention(form, qkv, form.documents ? starts : at::Tensor(), context, lse, work)();
  };
  rows.Computes(operation + " within documents", flops_within, [&] { ours(within); });
  rows.Computes(
      operation, flops, [&] { ours(a); }, [&] { forward(); });
  const auto result = forward();
  const at::Tensor grad_heads = grad.view({a.sequences, a.length, a.heads, a.head_dim}).transpose(1, 2);
  const auto backward = [&](const AttentionShape& form) {
    operations.PrepareAttention(form, 2);
    operations.AttentionBackward(form, qkv, form.documents ? starts : at::Tensor(), context, lse, grad,
                                 grad_qkv, work)();
  };
  // It takes keys and values of fewer heads, computes their gradients for every query head, and adds these
  // up.
  const auto flash = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, true);
  rows.Computes(
      operation + " backward, repeatable", 2.5 * flops, [&] { backward(a); },
      [&] {
        at::Context& aten = at::globalContext();
        aten.setDeterministicFillUninitializedMemory(false);  // or its outputs are first filled with NaN
        aten.setDeterministicAlgorithms(true, /*warn_only=*/false);
        at::_scaled_dot_product_flash_attention_backward(
            grad_heads, q, k, v, std::get<0>(flash), std::get<1>(flash), std::get<2>(flash),
            std::get<3>(flash), a.length, a.length, 0.0, true, std::get<6>(flash), std::get<7>(flash));
        aten.setDeterministicAlgorithms(false, /*warn_only=*/false);
      });
  rows.Computes(operation + " backward within documents, repeatable", 2.5 * flops_within,
                [&] { backward(within); });
  rows.Computes(
      operation + " backward, not repeatable", 2.5 * flops, [&] { backward(free); },
      [&] {
        at::_scaled_dot_product_cudnn_attention_backward(
            grad_heads, q, k, v, std::get<0>(result), std::get<1>(result), std::get<6>(result),
            std::get<7>(result), {}, {}, {}, a.length, a.length, 0.0, true);
      });
}

}  // namespace tandem::bench
