// SPDX-License-Identifier: Apache-2.0
#include "bench/shard_times.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>

#include <cstring>
#include <memory>
#include <vector>

#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/shard_kernels.h"
#include "fsdp/layout.h"

namespace tandem::bench {

void TimeShard(int64_t parameters, const ShapeRows& rows) {
  const at::TensorOptions of_float = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::TensorOptions of_bytes = of_float.dtype(at::kByte);
  const fsdp::Layout layout = fsdp::MakeLayout({{.name = "layer", .shape = {parameters}}}, 2);
  const auto elements = static_cast<int64_t>(layout.elements);
  const auto of_ranks = [&](int ranks) {
    return fsdp::CudaShardKernels().MakeUnit({.reduces_bf16 = true,
                                              .shard_elements = elements,
                                              .num_ranks = ranks,
                                              .num_parameters = 1,
                                              .pieces = fsdp::PiecesOf(layout, {0, elements})});
  };
  const std::unique_ptr<fsdp::UnitKernels> kernels = of_ranks(1);
  const fsdp::UnitBufferBytes sizes = fsdp::BufferBytesOf(layout, {}, 4);
  const auto bytes_of = [&](const auto& value) {
    at::Tensor host = at::empty({static_cast<int64_t>(sizeof(value))}, at::kByte);
    std::memcpy(host.mutable_data_ptr(), &value, sizeof(value));
    return host.to(at::kCUDA);
  };
  const at::Tensor outcome = bytes_of(fsdp::NormOutcome{.norm = 1, .clip = 1});
  const at::Tensor inputs = bytes_of(
      fsdp::RunInputs{.applied_step = 1, .learning_rate = 1e-4, .correction1 = 0.1, .correction2 = 0.05});
  constexpr int kRanks = 4;
  const at::Tensor contributions = at::randn({kRanks, elements}, of_float.dtype(at::kBFloat16));
  const at::Tensor contribution = contributions.select(0, 0);
  at::Tensor gradients = at::zeros({elements}, of_float);
  at::Tensor weights = at::randn({elements}, of_float);
  at::Tensor exp_avg = at::zeros({elements}, of_float);
  at::Tensor exp_avg_sq = at::zeros({elements}, of_float);
  at::Tensor published = at::empty({elements}, of_float.dtype(at::kBFloat16));
  at::Tensor norms = at::zeros({sizes.update_norms}, of_bytes);
  at::Tensor terms = at::zeros({sizes.norm_terms}, of_bytes);
  at::Tensor scratch = at::zeros({sizes.optimizer_scratch}, of_bytes);
  rows.Moves(
      "initial values", Bytes({weights}),
      [&] {
        fsdp::CudaShardKernels().Initialize(/*seed=*/1, layout.parameters[0], {.deviation = 0.02},
                                            layout.parameters[0].range, /*fp64=*/false,
                                            weights.mutable_data_ptr());
      },
      [&] { weights.normal_(0, 0.02); });
  // ATen: without the norm's terms.
  auto* const norm_terms = static_cast<fsdp::UnitNormTerms*>(terms.mutable_data_ptr());
  const auto fold = [&](const fsdp::UnitKernels& unit, bool add, fsdp::UnitNormTerms* of_norm) {
    unit.Fold(contributions.const_data_ptr(), gradients.mutable_data_ptr(), add, of_norm);
  };
  rows.Moves(
      "fold with the norm's terms", Bytes({contribution, gradients}),
      [&] { fold(*kernels, /*add=*/false, norm_terms); }, [&] { gradients.copy_(contribution); });
  rows.Moves(
      "fold with the norm's terms, added", Bytes({contribution, gradients, gradients}),
      [&] { fold(*kernels, /*add=*/true, norm_terms); }, [&] { gradients.add_(contribution); });
  rows.Moves(
      "fold, added", Bytes({contribution, gradients, gradients}),
      [&] { fold(*kernels, /*add=*/true, nullptr); }, [&] { gradients.add_(contribution); });
  const std::unique_ptr<fsdp::UnitKernels> of_four = of_ranks(kRanks);
  rows.Moves(
      "fold of 4 contributions with the norm's terms", Bytes({contributions, gradients}),
      [&] { fold(*of_four, /*add=*/false, norm_terms); },
      [&] { at::sum_out(gradients, contributions, {0}, /*keepdim=*/false, at::kFloat); });
  fsdp::OptimizerArrays arrays{.gradients = gradients.const_data_ptr(),
                               .weights = weights.mutable_data_ptr(),
                               .exp_avg = exp_avg.mutable_data_ptr(),
                               .exp_avg_sq = exp_avg_sq.mutable_data_ptr(),
                               .published = published.mutable_data_ptr(),
                               .outcome = static_cast<const fsdp::NormOutcome*>(outcome.const_data_ptr()),
                               .inputs = static_cast<const fsdp::RunInputs*>(inputs.const_data_ptr()),
                               .update_norms = static_cast<fsdp::ParameterNorms*>(norms.mutable_data_ptr()),
                               .scratch = scratch.mutable_data_ptr()};
  const fsdp::AdamWConfig config{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  std::vector<at::Tensor> steps = {at::ones({}, of_float)};
  for (const char* what : {"adamw, norms of the parameter, bf16 copy (ATen: update alone)",
                           "adamw, bf16 copy (ATen: update alone)"}) {
    rows.Moves(
        what, Bytes({gradients, weights, weights, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq, published}),
        [&] { kernels->OptimizerStep(arrays, config); },
        [&] {
          at::_fused_adamw_({weights}, {gradients}, {exp_avg}, {exp_avg_sq}, {}, steps, 1e-4, 0.9, 0.95, 0.1,
                            1e-8, false, false);
        });
    arrays.update_norms = nullptr;
  }
}

}  // namespace tandem::bench
