// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <algorithm>

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// Returns the probabilities of rows that have slots enough for a rank's experts.
template <typename T>
T* RowProbabilitiesOf(const Array& probabilities, int64_t top_k, int64_t experts_of_a_rank, DeviceKind on) {
  const int64_t least = std::min(top_k, experts_of_a_rank);
  Check(probabilities.columns >= least, "row_probabilities must have at least ", least, " slots a row, not ",
        probabilities.columns);
  return MatrixOf<T>("row_probabilities", probabilities, probabilities.rows, probabilities.columns, on);
}

}  // namespace

Call Operations::PlanSends(const Array& chosen, int64_t experts_of_a_rank, int64_t chunk, const Array& counts,
                           const Array& place, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = chosen.rows;
  const int64_t ranks = counts.elements();
  CheckExperts("PlanSends", ranks, on);
  return kernels_.Bind(
      PlanSendsArgs{.chosen = MatrixOf<int64_t>("chosen", chosen, tokens, chosen.columns, on),
                    .tokens = tokens,
                    .top_k = chosen.columns,
                    .experts_of_a_rank = experts_of_a_rank,
                    .ranks = ranks,
                    .chunk = chunk,
                    .counts = ElementsOf<int64_t>("counts", counts, ranks, on),
                    .place = MatrixOf<int64_t>("place", place, tokens, ranks, on),
                    .work = Checked("PlanSends", work, SortWorkBytes(on, tokens * ranks, ranks))});
}

Call Operations::SendSlots(const Array& chosen, const Array& probabilities, const Array& place,
                           int64_t experts_of_a_rank, const Array& slots,
                           const Array& row_probabilities) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = chosen.rows;
  const int64_t k = chosen.columns;
  const int64_t rows = row_probabilities.rows;
  const int64_t width = row_probabilities.columns;
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(SendSlotsArgs<T>{
        .chosen = MatrixOf<int64_t>("chosen", chosen, tokens, k, on),
        .probabilities = MatrixOf<T>("probabilities", probabilities, tokens, k, on),
        .place = MatrixOf<int64_t>("place", place, tokens, place.columns, on),
        .tokens = tokens,
        .top_k = k,
        .experts_of_a_rank = experts_of_a_rank,
        .ranks = place.columns,
        .rows = rows,
        .width = width,
        .slots = MatrixOf<int64_t>("slots", slots, rows, width, on),
        .row_probabilities = RowProbabilitiesOf<T>(row_probabilities, k, experts_of_a_rank, on)});
  });
}

Call Operations::CollectSlots(const Array& row_probabilities, const Array& chosen, const Array& place,
                              int64_t experts_of_a_rank, bool add, const Array& probabilities) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = chosen.rows;
  const int64_t k = chosen.columns;
  return WithStatisticsType(probabilities, [&]<typename T>(T) {
    return kernels_.Bind(CollectSlotsArgs<T>{
        .row_probabilities = RowProbabilitiesOf<T>(row_probabilities, k, experts_of_a_rank, on),
        .chosen = MatrixOf<int64_t>("chosen", chosen, tokens, k, on),
        .place = MatrixOf<int64_t>("place", place, tokens, place.columns, on),
        .tokens = tokens,
        .top_k = k,
        .experts_of_a_rank = experts_of_a_rank,
        .ranks = place.columns,
        .width = row_probabilities.columns,
        .add = add,
        .probabilities = MatrixOf<T>("probabilities", probabilities, tokens, k, on)});
  });
}

}  // namespace tandem::ops
