// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <initializer_list>

#include "cutlass/version.h"
#include "ops/cuda/gpu_attributes.h"
#include "ops/cuda/hopper_products.h"
#include "ops/sparse_work.h"

namespace tandem::ops::cuda {
namespace {

bool IsHopper() {
  return GpuAttribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         GpuAttribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

template <typename Args>
bool Suits(const Args& args, std::initializer_list<const void*> matrices) {
  return args.experts > 0 && args.experts <= kMostGpuGroups && args.rows > 0 && args.inputs > 0 &&
         args.outputs > 0 && args.inputs % 8 == 0 && args.outputs % 8 == 0 && BeginAtPacks(matrices) &&
         IsHopper();
}

}  // namespace

std::string HopperVersion() {
  if (!IsHopper()) {
    return "";
  }
  return "CUTLASS " + std::to_string(CUTLASS_MAJOR) + "." + std::to_string(CUTLASS_MINOR) + "." +
         std::to_string(CUTLASS_PATCH);
}

bool IsHopperProduct(const GroupedLinearArgs<Bf16>& args) {
  return Suits(args, {args.x, args.weight, args.y});
}

bool IsHopperProduct(const GroupedLinearBackwardInputArgs<Bf16>& args) {
  return Suits(args, {args.grad_y, args.weight, args.grad_x});
}

bool IsHopperProduct(const GroupedLinearBackwardWeightArgs<Bf16>& args) {
  return Suits(args, {args.grad_y, args.x, args.grad_weight, args.rounded});
}

}  // namespace tandem::ops::cuda
