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
  CheckMatrix("ranked", ranked, ranked.rows, ranked.columns, on);
  CheckMatrix("chosen", chosen, ranked.rows, ranked.columns, on);
  CheckMatrix("probabilities", probabilities, ranked.rows, ranked.columns, on);
  CheckExperts("DropOverflow", experts, on);
  CheckWork("DropOverflow", work, DropWorkBytes(on, ranked.elements(), experts));
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(DropOverflowArgs<T>{.policy = policy,
                                             .capacity = capacity,
                                             .experts = experts,
                                             .ranked = ElementsOf<int64_t>(ranked),
                                             .slots = ranked.elements(),
                                             .chosen = ElementsOf<int64_t>(chosen),
                                             .probabilities = ElementsOf<T>(probabilities),
                                             .work = work});
  });
}

}  // namespace tandem::ops
