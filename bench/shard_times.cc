// SPDX-License-Identifier: Apache-2.0
#include "bench/shard_times.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/shard_kernels.h"
#include "fsdp/layout.h"

namespace tandem::bench {

void TimeShard(int64_t parameters, const std::string& of_shape, const Bounds& bounds) {
  const at::TensorOptions of_float = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::TensorOptions of_bytes = of_float.dtype(at::kByte);
  const auto moves = [&](const char* name, double bytes, const std::function<void()>& ours,
                         const std::function<void()>& aten) {
    Report({{"shape", of_shape}, {"operation", name}}, {Unit::kBytes, bytes}, bounds, ours, aten);
    c10::cuda::CUDACachingAllocator::emptyCache();
  };
  const fsdp::Layout layout = fsdp::MakeLayout({{.name = "layer", .shape = {parameters}}}, 2);
  const auto elements = static_cast<int64_t>(layout.elements);
  const std::unique_ptr<fsdp::UnitKernels> kernels =
      fsdp::CudaShardKernels().MakeUnit({.reduces_bf16 = true,
                                         .shard_elements = elements,
                                         .num_parameters = 1,
                                         .pieces = fsdp::PiecesOf(layout, {0, elements})});
  const fsdp::UnitBufferBytes sizes = fsdp::BufferBytesOf(layout, {}, 4);
  const auto bytes_of = [&](const auto& value) {
    at::Tensor host = at::empty({static_cast<int64_t>(sizeof(value))}, at::kByte);
    std::memcpy(host.mutable_data_ptr(), &value, sizeof(value));
    return host.to(at::kCUDA);
  };
  const at::Tensor outcome = bytes_of(fsdp::NormOutcome{.norm = 1, .clip = 1});
  const at::Tensor inputs = bytes_of(
      fsdp::RunInputs{.applied_step = 1, .learning_rate = 1e-4, .correction1 = 0.1, .correction2 = 0.05});
  const at::Tensor contribution = at::randn({elements}, of_float.dtype(at::kBFloat16));
  at::Tensor gradients = at::zeros({elements}, of_float);
  at::Tensor weights = at::randn({elements}, of_float);
  at::Tensor exp_avg = at::zeros({elements}, of_float);
  at::Tensor exp_avg_sq = at::zeros({elements}, of_float);
  at::Tensor published = at::empty({elements}, of_float.dtype(at::kBFloat16));
  at::Tensor norms = at::zeros({sizes.update_norms}, of_bytes);
  at::Tensor terms = at::zeros({sizes.norm_terms}, of_bytes);
  at::Tensor scratch = at::zeros({sizes.optimizer_scratch}, of_bytes);
  moves(
      "initial values", Bytes({weights}),
      [&] {
        fsdp::CudaShardKernels().Initialize(/*seed=*/1, layout.parameters[0], {.deviation = 0.02},
                                            layout.parameters[0].range, /*fp64=*/false,
                                            weights.mutable_data_ptr());
      },
      [&] { weights.normal_(0, 0.02); });
  moves(
      "fold with the norm's terms", Bytes({contribution, gradients}),
      [&] {
        kernels->Fold(contribution.const_data_ptr(), gradients.mutable_data_ptr(), /*add=*/false,
                      static_cast<fsdp::UnitNormTerms*>(terms.mutable_data_ptr()));
      },
      [&] { gradients.copy_(contribution); });
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
    moves(
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
