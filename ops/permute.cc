// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// How many slots each token has.
int64_t SlotsOf(const Array& tokens, const Array& row_of, DeviceKind on) {
  const int64_t count = tokens.rows;
  const int64_t slots = row_of.elements();
  Check(count > 0 ? slots % count == 0 : slots == 0, slots, " slots are not as many for each of ", count,
        " tokens");
  CheckMatrix("tokens", tokens, count, tokens.columns, on);
  CheckElements("row_of", row_of, slots, on);
  return count > 0 ? slots / count : 0;
}

void CheckRowsOf(const Array& tokens, const Array& rows, DeviceKind on) {
  CheckMatrix("rows", rows, rows.rows, tokens.columns, on);
  Check(tokens.type == rows.type, "rows are of the type of their tokens");
}

}  // namespace

Call Operations::PlanRows(const Array& chosen, int64_t chunk, const Array& counts, const Array& row_of,
                          Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("chosen", chosen, chosen.elements(), on);
  CheckElements("counts", counts, counts.elements(), on);
  CheckElements("row_of", row_of, chosen.elements(), on);
  CheckExperts("PlanRows", counts.elements(), on);
  CheckWork("PlanRows", work, SortWorkBytes(on, chosen.elements(), counts.elements()));
  return kernels_.Bind(PlanRowsArgs{.chosen = ElementsOf<int64_t>(chosen),
                                    .slots = chosen.elements(),
                                    .experts = counts.elements(),
                                    .chunk = chunk,
                                    .counts = ElementsOf<int64_t>(counts),
                                    .row_of = ElementsOf<int64_t>(row_of),
                                    .work = work});
}

std::function<bool()> Operations::PlanWindow(const Array& counts, int64_t first, int64_t rows,
                                             const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.elements();
  CheckElements("counts", counts, experts, on);
  CheckElements("begins", begins, experts + 1, on);
  auto* const out = ElementsOf<int64_t>(begins);
  const Call plan = kernels_.Bind(PlanWindowArgs{ElementsOf<int64_t>(counts), experts, first, rows, out});
  return [plan, there = on == DeviceKind::kCpu ? out + experts : nullptr] {
    plan();
    return there == nullptr || *there > 0;
  };
}

Call Operations::Permute(const Array& tokens, const Array& row_of, int64_t first, const Array& rows,
                         const Array& begins) const {
  const int64_t slots = SlotsOf(tokens, row_of, kernels_.kind());
  CheckRowsOf(tokens, rows, kernels_.kind());
  return kernels_.Bind(PermuteArgs{.tokens = tokens.begin,
                                   .count = tokens.rows,
                                   .slots_of_a_token = slots,
                                   .row_of = ElementsOf<int64_t>(row_of),
                                   .first = first,
                                   .rows = rows.rows,
                                   .columns = tokens.columns,
                                   .element_bytes = BytesOf(tokens.type),
                                   .out = rows.begin,
                                   .rows_there = RowsThere(begins, kernels_.kind())});
}

Call Operations::Unpermute(const Array& rows, const Array& row_of, int64_t first, bool add,
                           const Array& tokens, const Array& begins) const {
  const int64_t slots = SlotsOf(tokens, row_of, kernels_.kind());
  CheckRowsOf(tokens, rows, kernels_.kind());
  return WithElementType(rows, [&]<typename E>(E) {
    return kernels_.Bind(UnpermuteArgs<E>{.rows = ElementsOf<E>(rows),
                                          .num_rows = rows.rows,
                                          .row_of = ElementsOf<int64_t>(row_of),
                                          .first = first,
                                          .add = add,
                                          .count = tokens.rows,
                                          .slots_of_a_token = slots,
                                          .columns = tokens.columns,
                                          .tokens = ElementsOf<E>(tokens),
                                          .rows_there = RowsThere(begins, kernels_.kind())});
  });
}

}  // namespace tandem::ops
