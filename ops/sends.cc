// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <algorithm>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

void CheckTokens(const Array& chosen, const Array& place, const Array& probabilities, DeviceKind on) {
  const int64_t tokens = chosen.rows;
  CheckMatrix("chosen", chosen, tokens, chosen.columns, on);
  CheckMatrix("place", place, tokens, place.columns, on);
  CheckMatrix("probabilities", probabilities, tokens, chosen.columns, on);
}

void CheckSlots(const Array& row_probabilities, int64_t top_k, int64_t experts_of_a_rank, DeviceKind on) {
  CheckMatrix("row_probabilities", row_probabilities, row_probabilities.rows, row_probabilities.columns, on);
  Check(row_probabilities.columns >= std::min(top_k, experts_of_a_rank),
        "a row has too few slots: ", row_probabilities.columns);
}

}  // namespace

Call Operations::PlanSends(const Array& chosen, int64_t experts_of_a_rank, int64_t chunk, const Array& counts,
                           const Array& place, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = chosen.rows;
  const int64_t ranks = counts.elements();
  CheckMatrix("chosen", chosen, tokens, chosen.columns, on);
  CheckElements("counts", counts, ranks, on);
  CheckMatrix("place", place, tokens, ranks, on);
  CheckExperts("PlanSends", ranks, on);
  CheckWork("PlanSends", work, SortWorkBytes(on, tokens * ranks, ranks));
  return kernels_.Bind(PlanSendsArgs{.chosen = ElementsOf<int64_t>(chosen),
                                     .tokens = tokens,
                                     .top_k = chosen.columns,
                                     .experts_of_a_rank = experts_of_a_rank,
                                     .ranks = ranks,
                                     .chunk = chunk,
                                     .counts = ElementsOf<int64_t>(counts),
                                     .place = ElementsOf<int64_t>(place),
                                     .work = work});
}

Call Operations::SendSlots(const Array& chosen, const Array& probabilities, const Array& place,
                           int64_t experts_of_a_rank, const Array& slots,
                           const Array& row_probabilities) const {
  const DeviceKind on = kernels_.kind();
  CheckTokens(chosen, place, probabilities, on);
  CheckSlots(row_probabilities, chosen.columns, experts_of_a_rank, on);
  CheckMatrix("slots", slots, row_probabilities.rows, row_probabilities.columns, on);
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(SendSlotsArgs<T>{.chosen = ElementsOf<int64_t>(chosen),
                                          .probabilities = ElementsOf<T>(probabilities),
                                          .place = ElementsOf<int64_t>(place),
                                          .tokens = chosen.rows,
                                          .top_k = chosen.columns,
                                          .experts_of_a_rank = experts_of_a_rank,
                                          .ranks = place.columns,
                                          .rows = slots.rows,
                                          .width = slots.columns,
                                          .slots = ElementsOf<int64_t>(slots),
                                          .row_probabilities = ElementsOf<T>(row_probabilities)});
  });
}

Call Operations::CollectSlots(const Array& row_probabilities, const Array& chosen, const Array& place,
                              int64_t experts_of_a_rank, bool add, const Array& probabilities) const {
  CheckTokens(chosen, place, probabilities, kernels_.kind());
  CheckSlots(row_probabilities, chosen.columns, experts_of_a_rank, kernels_.kind());
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(CollectSlotsArgs<T>{.row_probabilities = ElementsOf<T>(row_probabilities),
                                             .chosen = ElementsOf<int64_t>(chosen),
                                             .place = ElementsOf<int64_t>(place),
                                             .tokens = chosen.rows,
                                             .top_k = chosen.columns,
                                             .experts_of_a_rank = experts_of_a_rank,
                                             .ranks = place.columns,
                                             .width = row_probabilities.columns,
                                             .add = add,
                                             .probabilities = ElementsOf<T>(probabilities)});
  });
}

}  // namespace tandem::ops
