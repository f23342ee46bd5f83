// SPDX-License-Identifier: Apache-2.0
#include "ops/capacity.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void SparseOperations::DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts,
                                    const at::Tensor& ranked, at::Tensor& chosen, at::Tensor& probabilities,
                                    Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckMatrix("ranked", ranked, ranked.size(0), ranked.size(1), on);
  CheckMatrix("chosen", chosen, ranked.size(0), ranked.size(1), on);
  CheckMatrix("probabilities", probabilities, ranked.size(0), ranked.size(1), on);
  CheckExperts("DropOverflow", experts, on);
  CheckWork("DropOverflow", work, DropWorkBytes(on, ranked.numel(), experts));
  WithStatisticsType(probabilities, [&]<typename T>(T) {
    kernels_.Run(DropOverflowArgs<T>{.policy = policy,
                                     .capacity = capacity,
                                     .experts = experts,
                                     .ranked = ranked.const_data_ptr<int64_t>(),
                                     .slots = ranked.numel(),
                                     .chosen = chosen.mutable_data_ptr<int64_t>(),
                                     .probabilities = MutableElementsOf<T>(probabilities),
                                     .work = work});
  });
}

}  // namespace tandem::ops
