// SPDX-License-Identifier: Apache-2.0
// The experts' products of bfloat16 whose output is a weight's gradient.
#include "ops/cuda/hopper_product.cuh"
#include "ops/cuda/hopper_products.h"

namespace tandem::ops::cuda {
namespace {

template <typename D>
int MultiplyWeights(const GroupedLinearBackwardWeightArgs<Bf16>& args, const void* grad_weight,
                    Stream stream) {
  const int64_t elements = args.outputs * args.inputs;
  return HopperProduct<cutlass::layout::ColumnMajor, cutlass::layout::RowMajor, D, true>::Launch(
      {.begins = args.begins,
       .on_host = args.on_host,
       .experts = static_cast<int>(args.experts),
       .rows = static_cast<int>(args.outputs),
       .columns = static_cast<int>(args.inputs),
       .depth = -1,
       .a = {.begin = args.grad_y, .by_row = args.outputs, .stride = args.outputs},
       .b = {.begin = args.x, .by_row = args.inputs, .stride = args.inputs},
       .d = {.begin = grad_weight, .by_expert = elements, .stride = args.inputs}},
      args.add, args.work, stream);
}

}  // namespace

int LaunchHopper(const GroupedLinearBackwardWeightArgs<Bf16>& args, Stream stream) {
  return args.rounded != nullptr ? MultiplyWeights<cutlass::bfloat16_t>(args, args.rounded, stream)
                                 : MultiplyWeights<float>(args, args.grad_weight, stream);
}

}  // namespace tandem::ops::cuda
