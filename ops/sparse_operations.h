// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"
#include "ops/workspace.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

class DeviceKernels;

// The operations of sparse layers on one kind of device, as Operations says of its own; what each computes
// says the struct of its arguments (router.h, router_losses.h, capacity.h, permute.h, sends.h,
// grouped_linear.h, swiglu.h). How many rows each expert has is read on the GPU: the host never waits for it.
// Tensors of indices, counts and rows are int64. Thread-safe.
//
// An index outside is c10::IndexError on the CPU; on a GPU it counts as none (-1), but `ranked` must be as
// Route chose. `work`: at least what sparse_work.h and linear_work.h say for the device.
class SparseOperations {
 public:
  // It must live as long as this.
  explicit SparseOperations(const DeviceKernels& kernels) : kernels_(kernels) {}

  // bias: undefined: none.
  void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias, at::Tensor& chosen,
             at::Tensor& probabilities) const;
  void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                     const at::Tensor& chosen, const at::Tensor& grad_probabilities,
                     at::Tensor& grad_logits) const;
  void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) const;
  void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate,
                        at::Tensor& bias) const;

  // counts: undefined: those of each sequence.
  void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                    const at::Tensor& counts, at::Tensor& values, Workspace work) const;
  void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                            const at::Tensor& logits, const at::Tensor& counts, at::Tensor& grad_logits,
                            Workspace work) const;
  void CountLargest(const RouterConfig& config, const at::Tensor& logits, at::Tensor& counts) const;
  // seen: undefined: nothing is carried on.
  void MeanCounts(const at::Tensor& by_rank, int64_t slots, bool continues, at::Tensor& seen,
                  at::Tensor& counts) const;

  void DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const at::Tensor& ranked,
                    at::Tensor& chosen, at::Tensor& probabilities, Workspace work) const;

  void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of,
                Workspace work) const;
  // Returns whether there may be any rows: not where there are none, and that is known without waiting.
  bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows, at::Tensor& begins) const;
  // begins: those of PlanWindow for these rows, or null. With them a GPU does not look at the tokens where
  // the window has no rows; the result is the same.
  void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first, at::Tensor& rows,
               const at::Tensor* begins = nullptr) const;
  void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
                 at::Tensor& tokens, const at::Tensor* begins = nullptr) const;

  void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk, at::Tensor& counts,
                 at::Tensor& place, Workspace work) const;
  void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
                 int64_t experts_of_a_rank, at::Tensor& slots, at::Tensor& row_probabilities) const;
  void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen, const at::Tensor& place,
                    int64_t experts_of_a_rank, bool add, at::Tensor& probabilities) const;

  // begins: on a GPU either there, where the products read them, or on the host.
  void GroupedLinear(const at::Tensor& begins, const at::Tensor& x, const at::Tensor& weight, at::Tensor& y,
                     Workspace work) const;
  void GroupedLinearBackwardInput(const at::Tensor& begins, const at::Tensor& grad_y,
                                  const at::Tensor& weight, at::Tensor& grad_x, Workspace work) const;
  void GroupedLinearBackwardWeight(const at::Tensor& begins, const at::Tensor& grad_y, const at::Tensor& x,
                                   bool add, at::Tensor& grad_weight, Workspace work) const;

  // SwiGlu of the rows that the last of `begins` says there are, with weights. Both undefined: SwiGlu of all.
  void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                      at::Tensor& activated) const;
  void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                              const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                              at::Tensor& activated, at::Tensor& grad_weights) const;

 private:
  const DeviceKernels& kernels_;
};

}  // namespace tandem::ops
