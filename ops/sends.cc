// SPDX-License-Identifier: Apache-2.0
#include "ops/sends.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ops/device_kernels.h"
#include "ops/sparse_operations.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

void CheckTokens(const at::Tensor& chosen, const at::Tensor& place, const at::Tensor& probabilities,
                 DeviceKind on) {
  const int64_t tokens = chosen.size(0);
  CheckMatrix("chosen", chosen, tokens, chosen.size(1), on);
  CheckMatrix("place", place, tokens, place.size(1), on);
  CheckMatrix("probabilities", probabilities, tokens, chosen.size(1), on);
}

void CheckSlots(const at::Tensor& row_probabilities, int64_t top_k, int64_t experts_of_a_rank,
                DeviceKind on) {
  CheckMatrix("row_probabilities", row_probabilities, row_probabilities.size(0), row_probabilities.size(1),
              on);
  TORCH_CHECK(row_probabilities.size(1) >= std::min(top_k, experts_of_a_rank),
              "a row has too few slots: ", row_probabilities.size(1));
}

}  // namespace

void SparseOperations::PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk,
                                 at::Tensor& counts, at::Tensor& place, Workspace work) const {
  const DeviceKind on = kernels_.kind();
  const int64_t tokens = chosen.size(0);
  const int64_t ranks = counts.numel();
  CheckMatrix("chosen", chosen, tokens, chosen.size(1), on);
  CheckElements("counts", counts, ranks, on);
  CheckMatrix("place", place, tokens, ranks, on);
  CheckExperts("PlanSends", ranks, on);
  CheckWork("PlanSends", work, SortWorkBytes(on, tokens * ranks, ranks));
  kernels_.Run(PlanSendsArgs{.chosen = chosen.const_data_ptr<int64_t>(),
                             .tokens = tokens,
                             .top_k = chosen.size(1),
                             .experts_of_a_rank = experts_of_a_rank,
                             .ranks = ranks,
                             .chunk = chunk,
                             .counts = counts.mutable_data_ptr<int64_t>(),
                             .place = place.mutable_data_ptr<int64_t>(),
                             .work = work});
}

void SparseOperations::SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities,
                                 const at::Tensor& place, int64_t experts_of_a_rank, at::Tensor& slots,
                                 at::Tensor& row_probabilities) const {
  const DeviceKind on = kernels_.kind();
  CheckTokens(chosen, place, probabilities, on);
  CheckSlots(row_probabilities, chosen.size(1), experts_of_a_rank, on);
  CheckMatrix("slots", slots, row_probabilities.size(0), row_probabilities.size(1), on);
  WithStatisticsType(probabilities, [&]<typename T>(T) {
    kernels_.Run(SendSlotsArgs<T>{.chosen = chosen.const_data_ptr<int64_t>(),
                                  .probabilities = ElementsOf<T>(probabilities),
                                  .place = place.const_data_ptr<int64_t>(),
                                  .tokens = chosen.size(0),
                                  .top_k = chosen.size(1),
                                  .experts_of_a_rank = experts_of_a_rank,
                                  .ranks = place.size(1),
                                  .rows = slots.size(0),
                                  .width = slots.size(1),
                                  .slots = slots.mutable_data_ptr<int64_t>(),
                                  .row_probabilities = MutableElementsOf<T>(row_probabilities)});
  });
}

void SparseOperations::CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen,
                                    const at::Tensor& place, int64_t experts_of_a_rank, bool add,
                                    at::Tensor& probabilities) const {
  CheckTokens(chosen, place, probabilities, kernels_.kind());
  CheckSlots(row_probabilities, chosen.size(1), experts_of_a_rank, kernels_.kind());
  WithStatisticsType(probabilities, [&]<typename T>(T) {
    kernels_.Run(CollectSlotsArgs<T>{.row_probabilities = ElementsOf<T>(row_probabilities),
                                     .chosen = chosen.const_data_ptr<int64_t>(),
                                     .place = place.const_data_ptr<int64_t>(),
                                     .tokens = chosen.size(0),
                                     .top_k = chosen.size(1),
                                     .experts_of_a_rank = experts_of_a_rank,
                                     .ranks = place.size(1),
                                     .width = row_probabilities.size(1),
                                     .add = add,
                                     .probabilities = MutableElementsOf<T>(probabilities)});
  });
}

}  // namespace tandem::ops
