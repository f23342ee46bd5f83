// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/device_kernels.h"

// The CPU's kernels except products. Each does what the struct of its arguments says, for float, double and,
// except for routers and their probabilities, Bf16. Single-threaded. An index outside its range throws
// std::out_of_range.
namespace tandem::ops::cpu {

template <typename E>
void Run(const AttentionArgs<E>& args);
template <typename E>
void Run(const AttentionBackwardArgs<E>& args);
template <typename E>
void Run(const CausalConvArgs<E>& args);
template <typename E>
void Run(const CausalConvBackwardArgs<E>& args);
template <typename E>
void Run(const CrossEntropyArgs<E>& args);
template <typename E>
void Run(const EmbeddingArgs<E>& args);
template <typename E>
void Run(const EmbeddingBackwardArgs<E>& args);
template <typename E>
void Run(const GatedDeltaArgs<E>& args);
template <typename E>
void Run(const GatedDeltaBackwardArgs<E>& args);
template <typename E>
void Run(const GatedNormArgs<E>& args);
template <typename E>
void Run(const GatedNormBackwardArgs<E>& args);
template <typename E>
void Run(const HeadNormArgs<E>& args);
template <typename E>
void Run(const HeadNormBackwardArgs<E>& args);
template <typename E>
void Run(const NormGateArgs<E>& args);
template <typename E>
void Run(const NormGateBackwardArgs<E>& args);
template <typename E>
void Run(const OutputGateArgs<E>& args);
template <typename E>
void Run(const OutputGateBackwardArgs<E>& args);
template <typename E>
void Run(const PackLatentHeadsArgs<E>& args);
template <typename E>
void Run(const QkvBiasArgs<E>& args);
template <typename E>
void Run(const QkvBiasBackwardArgs<E>& args);
template <typename E>
void Run(const RmsNormArgs<E>& args);
template <typename E>
void Run(const RmsNormBackwardArgs<E>& args);
template <typename E>
void Run(const RopeArgs<E>& args);
template <typename E>
void Run(const SquaredReluArgs<E>& args);
template <typename E>
void Run(const SquaredReluBackwardArgs<E>& args);
template <typename E>
void Run(const StateScanArgs<E>& args);
template <typename E>
void Run(const StateScanBackwardArgs<E>& args);
template <typename E>
void Run(const SwiGluArgs<E>& args);
template <typename E>
void Run(const SwiGluBackwardArgs<E>& args);
template <typename E>
void Run(const TokenGateArgs<E>& args);
template <typename E>
void Run(const TokenGateBackwardArgs<E>& args);
template <typename E>
void Run(const UnpackLatentHeadsArgs<E>& args);

template <typename E>
void Run(const AddArgs<E>& args);
void Run(const CopyArgs& args);
void Run(const CountTokensArgs& args);
void Run(const FillArgs& args);
void Run(const MeanCountsArgs& args);
void Run(const PermuteArgs& args);
void Run(const PlanRowsArgs& args);
void Run(const PlanSendsArgs& args);
void Run(const PlanWindowArgs& args);
void Run(const WindowStartsArgs& args);
template <typename T>
void Run(const CollectSlotsArgs<T>& args);
template <typename T>
void Run(const CountLargestArgs<T>& args);
template <typename T>
void Run(const DropOverflowArgs<T>& args);
template <typename T>
void Run(const RouteArgs<T>& args);
template <typename T>
void Run(const RouteBackwardArgs<T>& args);
template <typename T>
void Run(const RouterLossesArgs<T>& args);
template <typename T>
void Run(const RouterLossesBackwardArgs<T>& args);
template <typename T>
void Run(const SendSlotsArgs<T>& args);
template <typename E>
void Run(const UnpermuteArgs<E>& args);
template <typename T>
void Run(const UpdateRouterBiasArgs<T>& args);

// To be used after the definition of Run for those arguments.
#define TANDEM_CPU_KERNEL(Args)                \
  template void Run(const Args<float>& args);  \
  template void Run(const Args<double>& args); \
  template void Run(const Args<device::Bf16>& args);

#define TANDEM_CPU_STATISTICS_KERNEL(Args)    \
  template void Run(const Args<float>& args); \
  template void Run(const Args<double>& args);

}  // namespace tandem::ops::cpu
