// SPDX-License-Identifier: Apache-2.0
#include "ops/permute.h"

#include <ATen/core/Tensor.h>

#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

// How many slots each token has.
int64_t SlotsOf(const at::Tensor& tokens, const at::Tensor& row_of, DeviceKind on) {
  const int64_t count = tokens.size(0);
  const int64_t slots = row_of.numel();
  TORCH_CHECK(count > 0 ? slots % count == 0 : slots == 0, slots, " slots are not as many for each of ",
              count, " tokens");
  CheckMatrix("tokens", tokens, count, tokens.size(1), on);
  CheckElements("row_of", row_of, slots, on);
  return count > 0 ? slots / count : 0;
}

void CheckRowsOf(const at::Tensor& tokens, const at::Tensor& rows, DeviceKind on) {
  CheckMatrix("rows", rows, rows.size(0), tokens.size(1), on);
  TORCH_CHECK(tokens.scalar_type() == rows.scalar_type(), "rows are of the type of their tokens");
}

// The last of a window's begins is how many rows it has.
const int64_t* RowsThere(const at::Tensor* begins, DeviceKind on) {
  if (begins == nullptr) {
    return nullptr;
  }
  CheckElements("begins", *begins, begins->numel(), on);
  return begins->const_data_ptr<int64_t>() + begins->numel() - 1;
}

}  // namespace

void SparseOperations::PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts,
                                at::Tensor& row_of, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("chosen", chosen, chosen.numel(), on);
  CheckElements("counts", counts, counts.numel(), on);
  CheckElements("row_of", row_of, chosen.numel(), on);
  CheckExperts("PlanRows", counts.numel(), on);
  CheckWork("PlanRows", work, SortWorkBytes(on, chosen.numel(), counts.numel()));
  kernels_.Run(PlanRowsArgs{.chosen = chosen.const_data_ptr<int64_t>(),
                            .slots = chosen.numel(),
                            .experts = counts.numel(),
                            .chunk = chunk,
                            .counts = counts.mutable_data_ptr<int64_t>(),
                            .row_of = row_of.mutable_data_ptr<int64_t>(),
                            .work = work});
}

bool SparseOperations::PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows,
                                  at::Tensor& begins) const {
  const DeviceKind on = kernels_.kind();
  const int64_t experts = counts.numel();
  CheckElements("counts", counts, experts, on);
  CheckElements("begins", begins, experts + 1, on);
  auto* const out = begins.mutable_data_ptr<int64_t>();
  kernels_.Run(PlanWindowArgs{counts.const_data_ptr<int64_t>(), experts, first, rows, out});
  return on == DeviceKind::kGpu || out[experts] > 0;
}

void SparseOperations::Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first,
                               at::Tensor& rows, const at::Tensor* begins) const {
  const int64_t slots = SlotsOf(tokens, row_of, kernels_.kind());
  CheckRowsOf(tokens, rows, kernels_.kind());
  kernels_.Run(PermuteArgs{.tokens = tokens.const_data_ptr(),
                           .count = tokens.size(0),
                           .slots_of_a_token = slots,
                           .row_of = row_of.const_data_ptr<int64_t>(),
                           .first = first,
                           .rows = rows.size(0),
                           .columns = tokens.size(1),
                           .element_bytes = static_cast<int64_t>(tokens.element_size()),
                           .out = rows.mutable_data_ptr(),
                           .rows_there = RowsThere(begins, kernels_.kind())});
}

void SparseOperations::Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
                                 at::Tensor& tokens, const at::Tensor* begins) const {
  const int64_t slots = SlotsOf(tokens, row_of, kernels_.kind());
  CheckRowsOf(tokens, rows, kernels_.kind());
  WithElementType(rows, [&]<typename E>(E) {
    kernels_.Run(UnpermuteArgs<E>{.rows = ElementsOf<E>(rows),
                                  .num_rows = rows.size(0),
                                  .row_of = row_of.const_data_ptr<int64_t>(),
                                  .first = first,
                                  .add = add,
                                  .count = tokens.size(0),
                                  .slots_of_a_token = slots,
                                  .columns = tokens.size(1),
                                  .tokens = MutableElementsOf<E>(tokens),
                                  .rows_there = RowsThere(begins, kernels_.kind())});
  });
}

}  // namespace tandem::ops
