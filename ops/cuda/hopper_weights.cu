// SPDX-License-Identifier: Apache-2.0
// The experts' products of bfloat16 whose output is a weight's gradient; and whether a GPU has such products.
#include <initializer_list>
#include <string>

#include "cutlass/version.h"
#include "ops/cuda/hopper_product.cuh"
#include "ops/cuda/hopper_products.h"
#include "ops/sparse_work.h"

namespace tandem::ops::cuda {
namespace {

template <typename D>
int MultiplyWeights(const GroupedLinearBackwardWeightArgs<Bf16>& args, const void* grad_weight,
                    Stream stream) {
  const int64_t elements = args.outputs * args.inputs;
  return HopperProduct<cutlass::layout::ColumnMajor, cutlass::layout::RowMajor, D, true>::Launch(
      {.begins = args.begins,
       .experts = static_cast<int>(args.experts),
       .rows = static_cast<int>(args.outputs),
       .columns = static_cast<int>(args.inputs),
       .depth = -1,
       .a = {.begin = args.grad_y, .by_row = args.outputs, .stride = args.outputs},
       .b = {.begin = args.x, .by_row = args.inputs, .stride = args.inputs},
       .d = {.begin = grad_weight, .by_expert = elements, .stride = args.inputs}},
      args.add, args.work, stream);
}

template <typename Args>
bool Suits(const Args& args, std::initializer_list<const void*> matrices) {
  bool suits = args.experts > 0 && args.experts <= kMostGpuGroups && args.rows > 0 && args.inputs > 0 &&
               args.outputs > 0 && args.inputs % 8 == 0 && args.outputs % 8 == 0;
  for (const void* matrix : matrices) suits = suits && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
  int device = 0;
  int major = 0;
  int minor = 0;
  return suits && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
         major == 9 && minor == 0;
}

}  // namespace

std::string HopperVersion() { return "CUTLASS " + std::to_string(CUTLASS_VERSION); }

bool IsHopperProduct(const GroupedLinearArgs<Bf16>& args) {
  return Suits(args, {args.x, args.weight, args.y});
}

bool IsHopperProduct(const GroupedLinearBackwardInputArgs<Bf16>& args) {
  return Suits(args, {args.grad_y, args.weight, args.grad_x});
}

bool IsHopperProduct(const GroupedLinearBackwardWeightArgs<Bf16>& args) {
  return Suits(args, {args.grad_y, args.x, args.grad_weight, args.rounded});
}

int LaunchHopper(const GroupedLinearBackwardWeightArgs<Bf16>& args, Stream stream) {
  return args.rounded != nullptr ? MultiplyWeights<cutlass::bfloat16_t>(args, args.rounded, stream)
                                 : MultiplyWeights<float>(args, args.grad_weight, stream);
}

}  // namespace tandem::ops::cuda
