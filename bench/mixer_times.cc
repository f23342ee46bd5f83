// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>

#include "bench/kernel_times.h"
#include "ops/cuda/operations.h"
#include "ops/delta_work.h"
#include "ops/mixer_work.h"
#include "ops/operations.h"
#include "ops/tensors.h"

namespace tandem::bench {

namespace {

constexpr int64_t kWidth = 4;

// y of the scan by batched products of [chunk, chunk] matrices, in float32 from bfloat16, as PyTorch's own
// models compute it: within each chunk, the states behind the chunks, these passed on, and what they add.
at::Tensor ScanByProducts(const ops::ScanShape& s, const at::Tensor& xbc, const at::Tensor& steps,
                          const at::Tensor& a_log, const at::Tensor& d) {
  const int64_t chunks = s.chunks();
  const int64_t share = s.heads / s.groups;
  const at::Tensor wide = xbc.to(at::kFloat).view({s.sequences, chunks, s.chunk, s.channels()});
  const auto by_head = [&](int64_t first, int64_t heads,
                           int64_t columns) {  // [B, chunks, heads, chunk, columns]
    return wide.narrow(3, first, heads * columns)
        .view({s.sequences, chunks, s.chunk, heads, columns})
        .transpose(2, 3);
  };
  const at::Tensor x = by_head(0, s.heads, s.head_dim);
  const at::Tensor b = by_head(s.inner(), s.groups, s.state).repeat_interleave(share, 2);
  const at::Tensor c = by_head(s.inner() + s.groups * s.state, s.groups, s.state).repeat_interleave(share, 2);
  const at::Tensor dt =
      at::softplus(steps.to(at::kFloat)).view({s.sequences, chunks, s.chunk, s.heads}).transpose(2, 3);
  const at::Tensor sums = (dt * -a_log.exp().view({-1, 1})).cumsum(3);
  const at::Tensor l = at::tril((sums.unsqueeze(4) - sums.unsqueeze(3)).exp());
  const at::Tensor stepped = x * dt.unsqueeze(4);
  at::Tensor y = c.matmul(b.transpose(3, 4)).mul_(l).matmul(stepped);
  const at::Tensor last = sums.narrow(3, s.chunk - 1, 1);
  const at::Tensor added = (stepped * (last - sums).exp().unsqueeze(4)).transpose(3, 4).matmul(b);
  at::Tensor state = at::zeros({s.sequences, s.heads, s.head_dim, s.state}, added.options());
  const at::Tensor decays = last.exp().unsqueeze(4);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    y.select(1, chunk).add_(
        (c.select(1, chunk) * sums.select(1, chunk).exp().unsqueeze(3)).matmul(state.transpose(2, 3)));
    state = state * decays.select(1, chunk) + added.select(1, chunk);
  }
  return (y + x * d.view({-1, 1, 1})).transpose(2, 3).to(at::kBFloat16);
}

}  // namespace

void TimeMixer(const ops::ScanShape& shape, const ShapeRows& rows) {
  const ops::ScanShape& s = shape;
  const at::TensorOptions bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions sums = bf16.dtype(at::kFloat);
  const ops::Operations& ops = ops::CudaOperations();
  const auto gpu = ops::DeviceKind::kGpu;
  at::Tensor memory = at::empty(
      {std::max({ops::CausalConvBackwardWorkBytes(gpu, s.sequences, s.length, s.channels(), kWidth, 2),
                 ops::StateScanWorkBytes(gpu, s, 2), ops::StateScanBackwardWorkBytes(gpu, s, 2),
                 ops::GatedNormBackwardWorkBytes(gpu, s.tokens(), s.inner(), 2)})},
      bf16.dtype(at::kByte));
  const ops::Workspace work{.begin = memory.mutable_data_ptr(), .bytes = memory.numel()};

  const at::Tensor xbc = at::randn({s.tokens(), s.channels()}, bf16);
  const at::Tensor grad_xbc = at::empty_like(xbc);
  const at::Tensor convolved = at::empty_like(xbc);
  const at::Tensor weight = at::randn({s.channels(), kWidth}, bf16);
  const at::Tensor bias = at::randn({s.channels()}, bf16);
  const at::Tensor grad_weight = at::empty({s.channels(), kWidth}, sums);
  const at::Tensor grad_bias = at::empty({s.channels()}, sums);
  const at::Tensor planes = xbc.view({s.sequences, s.length, s.channels()}).transpose(1, 2).contiguous();
  rows.Moves(
      "causal convolution", Bytes({xbc, convolved}),
      [&] { ops.CausalConv(s.sequences, xbc, at::Tensor(), weight, bias, convolved)(); },
      [&] { at::silu(at::conv1d(planes, weight.unsqueeze(1), bias, 1, kWidth - 1, 1, s.channels())); });
  rows.Moves("causal convolution backward", 3 * Bytes({xbc}), [&] {
    ops.CausalConvBackward(s.sequences, xbc, at::Tensor(), weight, bias, convolved, grad_xbc, grad_weight,
                           grad_bias, work)();
  });

  const at::Tensor steps = at::randn({s.tokens(), s.heads}, bf16);
  const at::Tensor dt_bias = at::zeros({s.heads}, sums);
  const at::Tensor a_log = at::rand({s.heads}, sums);
  const at::Tensor d = at::ones({s.heads}, sums);
  const at::Tensor y = at::empty({s.tokens(), s.inner()}, bf16);
  const at::Tensor states = at::empty({s.kept()}, sums);
  const ops::ScanInputs in{.xbc = xbc, .steps = steps, .dt_bias = dt_bias, .a_log = a_log, .d = d};
  rows.Moves(
      "scan", Bytes({xbc, steps, y, states}), [&] { ops.StateScan(s, in, y, states, work)(); },
      [&] { ScanByProducts(s, xbc, steps, a_log, d); });
  const at::Tensor grad_y = at::randn(y.sizes(), bf16);
  const at::Tensor grad_steps = at::empty_like(steps);
  at::Tensor grad_heads[] = {at::empty({s.heads}, sums), at::empty({s.heads}, sums),
                             at::empty({s.heads}, sums)};
  rows.Moves("scan backward", Bytes({xbc, steps, grad_y, states, grad_xbc, grad_steps}), [&] {
    ops.StateScanBackward(s, in, states, grad_y, grad_xbc, grad_steps, grad_heads[0], grad_heads[1],
                          grad_heads[2], work)();
  });

  const at::Tensor gate = at::randn(y.sizes(), bf16);
  const at::Tensor norm_weight = at::ones({s.inner()}, bf16);
  const at::Tensor normed = at::empty_like(y);
  rows.Moves(
      "gated norm", Bytes({y, gate, normed}),
      [&] { ops.GatedNorm(y, gate, norm_weight, s.groups, 1e-5, normed)(); },
      [&] {
        at::rms_norm((y * at::silu(gate)).view({s.tokens(), s.groups, -1}), {s.inner() / s.groups}, {}, 1e-5)
                .view(y.sizes()) *
            norm_weight;
      });
  const at::Tensor grad_gate = at::empty_like(gate);
  const at::Tensor grad_norm_weight = at::empty({s.inner()}, sums);
  rows.Moves("gated norm backward", 5 * Bytes({y}), [&] {
    ops.GatedNormBackward(grad_y, y, gate, norm_weight, s.groups, 1e-5, normed, grad_gate, grad_norm_weight,
                          work)();
  });
}

void TimeDeltaNet(const ops::DeltaShape& shape, const ShapeRows& rows) {
  const ops::DeltaShape& s = shape;
  const at::TensorOptions bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::TensorOptions sums = bf16.dtype(at::kFloat);
  const ops::Operations& ops = ops::CudaOperations();
  const auto gpu = ops::DeviceKind::kGpu;
  at::Tensor memory =
      at::empty({std::max(ops::GatedDeltaWorkBytes(gpu, s, 2), ops::GatedDeltaBackwardWorkBytes(gpu, s, 2))},
                bf16.dtype(at::kByte));
  const ops::Workspace work{.begin = memory.mutable_data_ptr(), .bytes = memory.numel()};
  const at::Tensor q = at::randn({s.tokens(), s.keys()}, bf16);
  const at::Tensor k = at::randn({s.tokens(), s.keys()}, bf16);
  const at::Tensor v = at::randn({s.tokens(), s.values()}, bf16);
  const at::Tensor ba = at::randn({s.tokens(), 2 * s.value_heads}, bf16);
  const at::Tensor dt_bias = at::ones({s.value_heads}, sums);
  const at::Tensor a_log = at::rand({s.value_heads}, sums);
  const at::Tensor y = at::empty_like(v);
  const at::Tensor states = at::empty({s.kept()}, sums);
  const ops::DeltaInputs in{.q = q, .k = k, .v = v, .ba = ba, .dt_bias = dt_bias, .a_log = a_log};
  rows.Moves("gated delta", Bytes({q, k, v, ba, y, states}),
             [&] { ops.GatedDelta(s, in, y, states, work)(); });
  const at::Tensor grad_y = at::randn(y.sizes(), bf16);
  const ops::DeltaGradients grads{.q = at::empty_like(q),
                                  .k = at::empty_like(k),
                                  .v = at::empty_like(v),
                                  .ba = at::empty_like(ba),
                                  .dt_bias = at::empty_like(dt_bias),
                                  .a_log = at::empty_like(a_log)};
  rows.Moves("gated delta backward", 2 * Bytes({q, k, v, ba}) + Bytes({grad_y, states}),
             [&] { ops.GatedDeltaBackward(s, in, states, grad_y, grads, work)(); });
}

}  // namespace tandem::bench
