// SPDX-License-Identifier: Apache-2.0
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

#include "bench/kernel_times.h"
#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/shard_kernels.h"
#include "fsdp/layout.h"

namespace tandem::bench {
namespace {

constexpr int kRanks = 4;  // of the fold of several contributions

at::TensorOptions OnGpu(at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); }

template <typename Value>
at::Tensor BytesOnGpu(const Value& value) {
  at::Tensor host = at::empty({static_cast<int64_t>(sizeof(value))}, at::kByte);
  std::memcpy(host.mutable_data_ptr(), &value, sizeof(value));
  return host.to(at::kCUDA);
}

// One parameter, which one rank has all of.
class ShardTimes {
 public:
  ShardTimes(int64_t parameters, const ShapeRows& rows)
      : rows_(rows), layout_(fsdp::MakeLayout({{.name = "layer", .shape = {parameters}}}, 2)) {}

  void Run() {
    InitialValues();
    Folds();
    OptimizerSteps();
  }

 private:
  std::unique_ptr<fsdp::UnitKernels> KernelsOf(int ranks) const {
    return fsdp::CudaShardKernels().MakeUnit({.reduces_bf16 = true,
                                              .shard_elements = layout_.elements,
                                              .num_ranks = ranks,
                                              .num_parameters = 1,
                                              .pieces = fsdp::PiecesOf(layout_, {0, layout_.elements})});
  }
  at::Tensor Zeros() const { return at::zeros({layout_.elements}, OnGpu(at::kFloat)); }
  at::Tensor ZeroBytes(int64_t bytes) const { return at::zeros({bytes}, OnGpu(at::kByte)); }

  void InitialValues() {
    rows_.Moves(
        "initial values", Bytes({weights_}),
        [&] {
          fsdp::CudaShardKernels().Initialize(/*seed=*/1, layout_.parameters[0], {.deviation = 0.02},
                                              layout_.parameters[0].range, /*fp64=*/false,
                                              weights_.mutable_data_ptr());
        },
        [&] { weights_.normal_(0, 0.02); });
  }

  // ATen: without the norm's terms.
  void Folds() {
    const std::unique_ptr<fsdp::UnitKernels> of_one = KernelsOf(1);
    const std::unique_ptr<fsdp::UnitKernels> of_four = KernelsOf(kRanks);
    const at::Tensor contributions = at::randn({kRanks, layout_.elements}, OnGpu(at::kBFloat16));
    const at::Tensor contribution = contributions.select(0, 0);
    at::Tensor terms = ZeroBytes(sizes_.norm_terms);
    auto* const norm_terms = static_cast<fsdp::UnitNormTerms*>(terms.mutable_data_ptr());
    const auto fold = [&](const fsdp::UnitKernels& unit, bool add, fsdp::UnitNormTerms* of_norm) {
      unit.Fold(contributions.const_data_ptr(), gradients_.mutable_data_ptr(), add, of_norm);
    };
    rows_.Moves(
        "fold with the norm's terms", Bytes({contribution, gradients_}),
        [&] { fold(*of_one, /*add=*/false, norm_terms); }, [&] { gradients_.copy_(contribution); });
    rows_.Moves(
        "fold with the norm's terms, added", Bytes({contribution, gradients_, gradients_}),
        [&] { fold(*of_one, /*add=*/true, norm_terms); }, [&] { gradients_.add_(contribution); });
    rows_.Moves(
        "fold, added", Bytes({contribution, gradients_, gradients_}),
        [&] { fold(*of_one, /*add=*/true, nullptr); }, [&] { gradients_.add_(contribution); });
    rows_.Moves(
        "fold of 4 contributions with the norm's terms", Bytes({contributions, gradients_}),
        [&] { fold(*of_four, /*add=*/false, norm_terms); },
        [&] { at::sum_out(gradients_, contributions, {0}, /*keepdim=*/false, at::kFloat); });
  }

  void OptimizerSteps() {
    const std::unique_ptr<fsdp::UnitKernels> kernels = KernelsOf(1);
    const at::Tensor outcome = BytesOnGpu(fsdp::NormOutcome{.norm = 1, .clip = 1});
    const at::Tensor inputs = BytesOnGpu(
        fsdp::RunInputs{.update = 1, .learning_rate = 1e-4, .correction1 = 0.1, .correction2 = 0.05});
    at::Tensor exp_avg = Zeros();
    at::Tensor exp_avg_sq = Zeros();
    at::Tensor published = at::empty({layout_.elements}, OnGpu(at::kBFloat16));
    at::Tensor norms = ZeroBytes(sizes_.update_norms);
    at::Tensor scratch = ZeroBytes(sizes_.optimizer_scratch);
    fsdp::OptimizerArrays arrays{.gradients = gradients_.const_data_ptr(),
                                 .weights = weights_.mutable_data_ptr(),
                                 .exp_avg = exp_avg.mutable_data_ptr(),
                                 .exp_avg_sq = exp_avg_sq.mutable_data_ptr(),
                                 .published = published.mutable_data_ptr(),
                                 .outcome = static_cast<const fsdp::NormOutcome*>(outcome.const_data_ptr()),
                                 .inputs = static_cast<const fsdp::RunInputs*>(inputs.const_data_ptr()),
                                 .update_norms = static_cast<fsdp::ParameterNorms*>(norms.mutable_data_ptr()),
                                 .scratch = scratch.mutable_data_ptr()};
    const fsdp::AdamWConfig config{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    std::vector<at::Tensor> steps = {at::ones({}, OnGpu(at::kFloat))};
    for (const char* what : {"adamw, norms of the parameter, bf16 copy (ATen: update alone)",
                             "adamw, bf16 copy (ATen: update alone)"}) {
      rows_.Moves(
          what, Bytes({gradients_, weights_, weights_, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq, published}),
          [&] { kernels->OptimizerStep(arrays, config); },
          [&] {
            at::_fused_adamw_({weights_}, {gradients_}, {exp_avg}, {exp_avg_sq}, {}, steps, 1e-4, 0.9, 0.95,
                              0.1, 1e-8, false, false);
          });
      arrays.update_norms = nullptr;
    }
  }

  const ShapeRows& rows_;
  const fsdp::Layout layout_;
  const fsdp::UnitBufferBytes sizes_ = fsdp::BufferBytesOf(layout_, {}, 4);
  at::Tensor weights_ = at::randn({layout_.elements}, OnGpu(at::kFloat));
  at::Tensor gradients_ = Zeros();
};

}  // namespace

void TimeShard(int64_t parameters, const ShapeRows& rows) { ShardTimes(parameters, rows).Run(); }

}  // namespace tandem::bench
