// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/router_config.h"
#include "ops/workspace.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

// The operations of sparse layers on one kind of device. Each method is what the function of its name says
// (router.h, router_losses.h, capacity.h, permute.h, sends.h, grouped_linear.h, swiglu.h); on a GPU it
// launches kernels on the current stream and returns: how many rows each expert has is read there, and the
// host never waits for it. Deterministic, as all Operations are. Thread-safe.
//
// An index outside is an error on the CPU; on a GPU it counts as none (-1), but `ranked` must be as Route
// chose. `work`: at least what sparse_work.h and linear_work.h say for the device.
class SparseOperations {
 public:
  virtual ~SparseOperations() = default;

  // router.h
  virtual void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias,
                     at::Tensor& chosen, at::Tensor& probabilities) const = 0;
  virtual void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                             const at::Tensor& chosen, const at::Tensor& grad_probabilities,
                             at::Tensor& grad_logits) const = 0;
  virtual void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) const = 0;
  virtual void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate,
                                at::Tensor& bias) const = 0;

  // router_losses.h
  virtual void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses,
                            const at::Tensor& logits, at::Tensor& values, Workspace work) const = 0;
  virtual void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                                    const at::Tensor& logits, at::Tensor& grad_logits,
                                    Workspace work) const = 0;

  // capacity.h
  virtual void DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const at::Tensor& ranked,
                            at::Tensor& chosen, at::Tensor& probabilities, Workspace work) const = 0;

  // permute.h
  virtual void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of,
                        Workspace work) const = 0;
  virtual bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows,
                          at::Tensor& begins) const = 0;
  virtual void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first,
                       at::Tensor& rows) const = 0;
  virtual void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
                         at::Tensor& tokens) const = 0;

  // sends.h
  virtual void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk,
                         at::Tensor& counts, at::Tensor& place, Workspace work) const = 0;
  virtual void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
                         int64_t experts_of_a_rank, at::Tensor& slots,
                         at::Tensor& row_probabilities) const = 0;
  virtual void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen,
                            const at::Tensor& place, int64_t experts_of_a_rank, bool add,
                            at::Tensor& probabilities) const = 0;

  // grouped_linear.h. begins: on a GPU either there, and read by the products, or on the host, where they are
  // those of Operations, one an expert.
  virtual void GroupedLinear(const at::Tensor& begins, const at::Tensor& x, const at::Tensor& weight,
                             at::Tensor& y, Workspace work) const = 0;
  virtual void GroupedLinearBackwardInput(const at::Tensor& begins, const at::Tensor& grad_y,
                                          const at::Tensor& weight, at::Tensor& grad_x,
                                          Workspace work) const = 0;
  virtual void GroupedLinearBackwardWeight(const at::Tensor& begins, const at::Tensor& grad_y,
                                           const at::Tensor& x, bool add, at::Tensor& grad_weight,
                                           Workspace work) const = 0;

  // swiglu.h
  virtual void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                              at::Tensor& activated) const = 0;
  virtual void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up,
                                      const at::Tensor& weights, const at::Tensor& grad_activated,
                                      at::Tensor& grad_gate_up, at::Tensor& activated,
                                      at::Tensor& grad_weights) const = 0;
};

// The functions of this folder.
const SparseOperations& CpuSparseOperations();

}  // namespace tandem::ops
