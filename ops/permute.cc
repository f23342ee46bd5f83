// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

// The number of slots of each token.
int64_t SlotsOf(const Array& tokens, const Array& rows, const Array& row_of) {
  const int64_t slots = row_of.elements();
  Check(tokens.rows > 0 ? slots % tokens.rows == 0 : slots == 0, slots, " slots are not as many for each of ",
        tokens.rows, " tokens");
  Check(tokens.type == rows.type, "rows must have the type of tokens: ", tokens.shape(), ", not ",
        rows.shape());
  return tokens.rows > 0 ? slots / tokens.rows : 0;
}

}  // namespace

Call Operations::PlanRows(const Array& chosen, int64_t chunk, const Array& counts, const Array& row_of,
                          Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t slots = chosen.elements();
  const int64_t experts = counts.elements();
  CheckExperts("PlanRows", experts, on);
  return kernels_.Bind(PlanRowsArgs{.chosen = ElementsOf<int64_t>("chosen", chosen, slots, on),
                                    .slots = slots,
                                    .experts = experts,
                                    .chunk = chunk,
                                    .counts = ElementsOf<int64_t>("counts", counts, experts, on),
                                    .row_of = ElementsOf<int64_t>("row_of", row_of, slots, on),
                                    .work = Checked("PlanRows", work, SortWorkBytes(on, slots, experts))});
}

std::function<bool()> Operations::PlanWindow(const Array& counts, int64_t first, int64_t rows,
                                             const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.elements();
  const PlanWindowArgs args{.counts = ElementsOf<int64_t>("counts", counts, experts, on),
                            .experts = experts,
                            .first = first,
                            .rows = rows,
                            .begins = ElementsOf<int64_t>("begins", begins, experts + 1, on)};
  return [plan = kernels_.Bind(args), there = on == DeviceKind::kCpu ? args.begins + experts : nullptr] {
    plan();
    return there == nullptr || *there > 0;
  };
}

Call Operations::Permute(const Array& tokens, const Array& row_of, int64_t first, const Array& rows,
                         const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t slots = SlotsOf(tokens, rows, row_of);
  CheckMatrix("tokens", tokens, tokens.rows, tokens.columns, on);
  CheckMatrix("rows", rows, rows.rows, tokens.columns, on);
  return kernels_.Bind(PermuteArgs{.tokens = tokens.begin,
                                   .count = tokens.rows,
                                   .slots_of_a_token = slots,
                                   .row_of = ElementsOf<int64_t>("row_of", row_of, row_of.elements(), on),
                                   .first = first,
                                   .rows = rows.rows,
                                   .columns = tokens.columns,
                                   .element_bytes = BytesOf(tokens.type),
                                   .out = rows.begin,
                                   .rows_there = RowsThere(begins, on)});
}

Call Operations::Unpermute(const Array& rows, const Array& row_of, int64_t first, bool add,
                           const Array& tokens, const Array& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t columns = tokens.columns;
  return WithElementType(rows, [&]<typename E>(E) {
    return kernels_.Bind(
        UnpermuteArgs<E>{.rows = MatrixOf<E>("rows", rows, rows.rows, columns, on),
                         .num_rows = rows.rows,
                         .row_of = ElementsOf<int64_t>("row_of", row_of, row_of.elements(), on),
                         .first = first,
                         .add = add,
                         .count = tokens.rows,
                         .slots_of_a_token = SlotsOf(tokens, rows, row_of),
                         .columns = columns,
                         .tokens = MatrixOf<E>("tokens", tokens, tokens.rows, columns, on),
                         .rows_there = RowsThere(begins, on)});
  });
}

}  // namespace tandem::ops
