// SPDX-License-Identifier: Apache-2.0
// The experts' products of bfloat16 whose output has a row for each row of an expert.
#include "ops/cuda/hopper_product.cuh"
#include "ops/cuda/hopper_products.h"

namespace tandem::ops::cuda {

using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;

int LaunchHopper(const GroupedLinearArgs<Bf16>& args, Stream stream) {
  return HopperProduct<RowMajor, ColumnMajor, cutlass::bfloat16_t, false>::Launch(
      {.begins = args.begins,
       .on_host = args.on_host,
       .experts = static_cast<int>(args.experts),
       .rows = -1,
       .columns = static_cast<int>(args.outputs),
       .depth = static_cast<int>(args.inputs),
       .a = {.begin = args.x, .by_row = args.inputs, .stride = args.inputs},
       .b = {.begin = args.weight, .by_expert = args.outputs * args.inputs, .stride = args.inputs},
       .d = {.begin = args.y, .by_row = args.outputs, .stride = args.outputs}},
      /*add=*/false, args.work, stream);
}

int LaunchHopper(const GroupedLinearBackwardInputArgs<Bf16>& args, Stream stream) {
  return HopperProduct<RowMajor, RowMajor, cutlass::bfloat16_t, false>::Launch(
      {.begins = args.begins,
       .on_host = args.on_host,
       .experts = static_cast<int>(args.experts),
       .rows = -1,
       .columns = static_cast<int>(args.inputs),
       .depth = static_cast<int>(args.outputs),
       .a = {.begin = args.grad_y, .by_row = args.outputs, .stride = args.outputs},
       .b = {.begin = args.weight, .by_expert = args.outputs * args.inputs, .stride = args.inputs},
       .d = {.begin = args.grad_x, .by_row = args.inputs, .stride = args.inputs}},
      /*add=*/false, args.work, stream);
}

}  // namespace tandem::ops::cuda
