// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "ops/array.h"
#include "ops/call.h"
#include "ops/router_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

class DeviceKernels;

// The operations of sparse layers on one kind of device, with the same rules as Operations. The struct of an
// operation's arguments says what it computes (router.h, router_losses.h, capacity.h, permute.h, sends.h,
// grouped_linear.h, swiglu.h). The number of rows of each expert is read on the GPU, so the host never waits
// for it. Arrays of indices, counts and rows are int64. Thread-safe.
//
// An index outside its range is std::out_of_range on the CPU; on a GPU it counts as -1, but `ranked` must be
// as Route chose. `work` has at least the size that sparse_work.h and linear_work.h give for the device.
class SparseOperations {
 public:
  // `kernels` must outlive this object.
  explicit SparseOperations(const DeviceKernels& kernels) : kernels_(kernels) {}

  // `bias` may be undefined: none.
  Call Route(const RouterConfig& config, const Array& logits, const Array& bias, const Array& chosen,
             const Array& probabilities) const;
  Call RouteBackward(const RouterConfig& config, const Array& logits, const Array& ranked,
                     const Array& chosen, const Array& grad_probabilities, const Array& grad_logits) const;
  Call CountTokens(const Array& chosen, const Array& tokens, const Array& dropped) const;
  Call UpdateRouterBias(const Array& tokens, const Array& applies, double rate, const Array& bias) const;

  // `counts` may be undefined: they are counted for each sequence. targets: int64 [B, S]; undefined: all
  // count.
  Call RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                    const Array& counts, const Array& values, Workspace work) const;
  Call RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                            const Array& counts, const Array& targets, const Array& grad_logits,
                            Workspace work) const;
  Call CountLargest(const RouterConfig& config, const Array& logits, const Array& counts) const;
  // `seen` may be undefined: nothing is carried over.
  Call MeanCounts(const Array& by_rank, int64_t slots, bool continues, const Array& seen,
                  const Array& counts) const;

  Call DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const Array& ranked,
                    const Array& chosen, const Array& probabilities, Workspace work) const;

  Call PlanRows(const Array& chosen, int64_t chunk, const Array& counts, const Array& row_of,
                Workspace work) const;
  // The call returns false if it is known without waiting that there are no rows.
  std::function<bool()> PlanWindow(const Array& counts, int64_t first, int64_t rows,
                                   const Array& begins) const;
  // `begins` are those of PlanWindow for these rows, or undefined. With them a GPU skips the tokens if the
  // window has no rows; the result is the same.
  Call Permute(const Array& tokens, const Array& row_of, int64_t first, const Array& rows,
               const Array& begins = {}) const;
  Call Unpermute(const Array& rows, const Array& row_of, int64_t first, bool add, const Array& tokens,
                 const Array& begins = {}) const;

  Call PlanSends(const Array& chosen, int64_t experts_of_a_rank, int64_t chunk, const Array& counts,
                 const Array& place, Workspace work) const;
  Call SendSlots(const Array& chosen, const Array& probabilities, const Array& place,
                 int64_t experts_of_a_rank, const Array& slots, const Array& row_probabilities) const;
  Call CollectSlots(const Array& row_probabilities, const Array& chosen, const Array& place,
                    int64_t experts_of_a_rank, bool add, const Array& probabilities) const;

  // `begins` are on the device; on a GPU they may also be on the host.
  Call GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                     Workspace work) const;
  Call GroupedLinearBackwardInput(const Array& begins, const Array& grad_y, const Array& weight,
                                  const Array& grad_x, Workspace work) const;
  Call GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x, bool add,
                                   const Array& grad_weight, Workspace work) const;

  // SwiGlu of the rows counted by the last element of `begins`, times weights. If `begins` is undefined, of
  // all rows; if both are undefined, SwiGlu of all rows.
  Call WeightedSwiGlu(const Array& begins, const Array& gate_up, const Array& weights,
                      const Array& activated) const;
  Call WeightedSwiGluBackward(const Array& begins, const Array& gate_up, const Array& weights,
                              const Array& grad_activated, const Array& grad_gate_up, const Array& activated,
                              const Array& grad_weights) const;

 private:
  const DeviceKernels& kernels_;
};

}  // namespace tandem::ops
