// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "ops/capacity.h"
#include "ops/grouped_linear.h"
#include "ops/operations.h"
#include "ops/permute.h"
#include "ops/router.h"
#include "ops/router_losses.h"
#include "ops/sends.h"
#include "ops/sparse_operations.h"
#include "ops/swiglu.h"

namespace tandem::ops {
namespace {

class CpuSparse final : public SparseOperations {
 public:
  void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias, at::Tensor& chosen,
             at::Tensor& probabilities) const override {
    ops::Route(config, logits, bias, chosen, probabilities);
  }
  void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                     const at::Tensor& chosen, const at::Tensor& grad_probabilities,
                     at::Tensor& grad_logits) const override {
    ops::RouteBackward(config, logits, ranked, chosen, grad_probabilities, grad_logits);
  }
  void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) const override {
    ops::CountTokens(chosen, tokens, dropped);
  }
  void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate,
                        at::Tensor& bias) const override {
    ops::UpdateRouterBias(tokens, applies, rate, bias);
  }
  void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                    at::Tensor& values, Workspace) const override {
    ops::RouterLosses(config, losses, logits, values);
  }
  void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                            const at::Tensor& logits, at::Tensor& grad_logits, Workspace) const override {
    ops::RouterLossesBackward(config, losses, logits, grad_logits);
  }
  void DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const at::Tensor& ranked,
                    at::Tensor& chosen, at::Tensor& probabilities, Workspace) const override {
    ops::DropOverflow(policy, capacity, experts, ranked, chosen, probabilities);
  }
  void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of,
                Workspace) const override {
    ops::PlanRows(chosen, chunk, counts, row_of);
  }
  bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows, at::Tensor& begins) const override {
    return ops::PlanWindow(counts, first, rows, begins);
  }
  void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first,
               at::Tensor& rows) const override {
    ops::Permute(tokens, row_of, first, rows);
  }
  void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
                 at::Tensor& tokens) const override {
    ops::Unpermute(rows, row_of, first, add, tokens);
  }
  void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk, at::Tensor& counts,
                 at::Tensor& place, Workspace) const override {
    ops::PlanSends(chosen, experts_of_a_rank, chunk, counts, place);
  }
  void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
                 int64_t experts_of_a_rank, at::Tensor& slots, at::Tensor& row_probabilities) const override {
    ops::SendSlots(chosen, probabilities, place, experts_of_a_rank, slots, row_probabilities);
  }
  void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen, const at::Tensor& place,
                    int64_t experts_of_a_rank, bool add, at::Tensor& probabilities) const override {
    ops::CollectSlots(row_probabilities, chosen, place, experts_of_a_rank, add, probabilities);
  }
  void GroupedLinear(const at::Tensor& begins, const at::Tensor& x, const at::Tensor& weight, at::Tensor& y,
                     Workspace work) const override {
    ops::GroupedLinear(CpuOperations(), begins, x, weight, y, work);
  }
  void GroupedLinearBackwardInput(const at::Tensor& begins, const at::Tensor& grad_y,
                                  const at::Tensor& weight, at::Tensor& grad_x,
                                  Workspace work) const override {
    ops::GroupedLinearBackwardInput(CpuOperations(), begins, grad_y, weight, grad_x, work);
  }
  void GroupedLinearBackwardWeight(const at::Tensor& begins, const at::Tensor& grad_y, const at::Tensor& x,
                                   bool add, at::Tensor& grad_weight, Workspace work) const override {
    ops::GroupedLinearBackwardWeight(CpuOperations(), begins, grad_y, x, add, grad_weight, work);
  }
  void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                      at::Tensor& activated) const override {
    ops::WeightedSwiGlu(begins, gate_up, weights, activated);
  }
  void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                              const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                              at::Tensor& activated, at::Tensor& grad_weights) const override {
    ops::WeightedSwiGluBackward(begins, gate_up, weights, grad_activated, grad_gate_up, activated,
                                grad_weights);
  }
};

}  // namespace

const SparseOperations& CpuSparseOperations() {
  static const CpuSparse operations;
  return operations;
}

}  // namespace tandem::ops
