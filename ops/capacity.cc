// SPDX-License-Identifier: Apache-2.0
#include "ops/capacity.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {

Call Operations::DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const Array& ranked,
                              const Array& chosen, const Array& probabilities, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckExperts("DropOverflow", experts, on);
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(DropOverflowArgs<T>{
        .policy = policy,
        .capacity = capacity,
        .experts = experts,
        .ranked = MatrixOf<int64_t>("ranked", ranked, ranked.rows, ranked.columns, on),
        .slots = ranked.elements(),
        .chosen = MatrixOf<int64_t>("chosen", chosen, ranked.rows, ranked.columns, on),
        .probabilities = MatrixOf<T>("probabilities", probabilities, ranked.rows, ranked.columns, on),
        .work = Checked("DropOverflow", work, DropWorkBytes(on, ranked.elements(), experts))});
  });
}

}  // namespace tandem::ops
