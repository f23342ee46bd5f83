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

// The operations of sparse layers on one kind of device, as Operations says of its own; what each computes
// says the struct of its arguments (router.h, router_losses.h, capacity.h, permute.h, sends.h,
// grouped_linear.h, swiglu.h). How many rows each expert has is read on the GPU: the host never waits for it.
// Arrays of indices, counts and rows are int64. Thread-safe.
//
// An index outside is std::out_of_range on the CPU; on a GPU it counts as none (-1), but `ranked` must be as
// Route chose. `work`: at least what sparse_work.h and linear_work.h say for the device.
class SparseOperations {
 public:
  // It must live as long as this.
  explicit SparseOperations(const DeviceKernels& kernels) : kernels_(kernels) {}

  // bias: undefined: none.
  Call Route(const RouterConfig& config, const Array& logits, const Array& bias, const Array& chosen,
             const Array& probabilities) const;
  Call RouteBackward(const RouterConfig& config, const Array& logits, const Array& ranked,
                     const Array& chosen, const Array& grad_probabilities, const Array& grad_logits) const;
  Call CountTokens(const Array& chosen, const Array& tokens, const Array& dropped) const;
  Call UpdateRouterBias(const Array& tokens, const Array& applies, double rate, const Array& bias) const;

  // counts: undefined: those of each sequence. targets: int64 [B, S]; undefined: all count.
  Call RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                    const Array& counts, const Array& values, Workspace work) const;
  Call RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                            const Array& counts, const Array& targets, const Array& grad_logits,
                            Workspace work) const;
  Call CountLargest(const RouterConfig& config, const Array& logits, const Array& counts) const;
  // seen: undefined: nothing is carried on.
  Call MeanCounts(const Array& by_rank, int64_t slots, bool continues, const Array& seen,
                  const Array& counts) const;

  Call DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const Array& ranked,
                    const Array& chosen, const Array& probabilities, Workspace work) const;

  Call PlanRows(const Array& chosen, int64_t chunk, const Array& counts, const Array& row_of,
                Workspace work) const;
  // The call returns whether there may be any rows: not where there are none, and that is known without
  // waiting.
  std::function<bool()> PlanWindow(const Array& counts, int64_t first, int64_t rows,
                                   const Array& begins) const;
  // begins: those of PlanWindow for these rows, or not defined. With them a GPU does not look at the tokens
  // where the window has no rows; the result is the same.
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

  // begins: on a GPU either there, where the products read them, or on the host.
  Call GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                     Workspace work) const;
  Call GroupedLinearBackwardInput(const Array& begins, const Array& grad_y, const Array& weight,
                                  const Array& grad_x, Workspace work) const;
  Call GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x, bool add,
                                   const Array& grad_weight, Workspace work) const;

  // SwiGlu of the rows that the last of `begins` says there are, with weights. Both undefined: SwiGlu of all.
  Call WeightedSwiGlu(const Array& begins, const Array& gate_up, const Array& weights,
                      const Array& activated) const;
  Call WeightedSwiGluBackward(const Array& begins, const Array& gate_up, const Array& weights,
                              const Array& grad_activated, const Array& grad_gate_up, const Array& activated,
                              const Array& grad_weights) const;

 private:
  const DeviceKernels& kernels_;
};

}  // namespace tandem::ops
