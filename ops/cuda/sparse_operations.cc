// SPDX-License-Identifier: Apache-2.0
#include "ops/sparse_operations.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <type_traits>

#include "ops/cuda/operations.h"
#include "ops/cuda/sparse_kernels.h"
#include "ops/grouped_linear.h"
#include "ops/router.h"
#include "ops/sparse_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

constexpr DeviceKind kOnGpu = DeviceKind::kGpu;

void CheckStarted(int error, const char* operation) {
  TORCH_CHECK(error == 0, operation, ": the kernel did not start, CUDA error ", error);
}

cuda::Stream Now() { return c10::cuda::getCurrentCUDAStream().stream(); }

const int64_t* Integers(const at::Tensor& tensor) { return tensor.const_data_ptr<int64_t>(); }
int64_t* MutableIntegers(at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); }

// Calls body(T{}) with the type of what routers compute in: float or double.
template <typename Body>
void WithStatistics(const at::Tensor& tensor, const Body& body) {
  WithElementType(tensor, [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      body(T{});
    } else {
      TORCH_CHECK(false, "routers compute in float32 or float64, not ", tensor.scalar_type());
    }
  });
}

void CheckExperts(const char* operation, int64_t experts) {
  TORCH_CHECK(experts <= cuda::kMostGroups, operation, " on a GPU takes at most ", cuda::kMostGroups,
              " experts, not ", experts);
}

// Where the rows of experts begin, and the number of these.
struct Groups {
  Groups(const at::Tensor& begins, const at::Tensor& weight)
      : begins(Integers(begins)),
        experts(begins.numel() - 1),
        outputs(weight.size(0) / std::max<int64_t>(1, experts)) {
    TORCH_CHECK(experts > 0, "no experts");
    CheckElements("begins", begins, experts + 1, kOnGpu);
    CheckMatrix("weight", weight, experts * outputs, weight.size(1), kOnGpu);
  }
  const int64_t* begins;
  int64_t experts;
  int64_t outputs;  // of each expert
};

// The slots of each token in `row_of`.
int64_t SlotsOf(const at::Tensor& tokens, const at::Tensor& rows, const at::Tensor& row_of) {
  const int64_t count = tokens.size(0);
  TORCH_CHECK(count > 0 && row_of.numel() % count == 0, row_of.numel(), " slots are not as many for each of ",
              count, " tokens");
  CheckMatrix("tokens", tokens, count, tokens.size(1), kOnGpu);
  CheckMatrix("rows", rows, rows.size(0), tokens.size(1), kOnGpu);
  CheckElements("row_of", row_of, row_of.numel(), kOnGpu);
  TORCH_CHECK(tokens.scalar_type() == rows.scalar_type(), "rows are of the type of their tokens");
  return row_of.numel() / count;
}

void CheckSlots(const at::Tensor& chosen, const at::Tensor& place, const at::Tensor& row_probabilities,
                const at::Tensor& probabilities, int64_t experts_of_a_rank) {
  const int64_t tokens = chosen.size(0);
  CheckMatrix("chosen", chosen, tokens, chosen.size(1), kOnGpu);
  CheckMatrix("place", place, tokens, place.size(1), kOnGpu);
  CheckMatrix("probabilities", probabilities, tokens, chosen.size(1), kOnGpu);
  CheckMatrix("row_probabilities", row_probabilities, row_probabilities.size(0), row_probabilities.size(1),
              kOnGpu);
  TORCH_CHECK(row_probabilities.size(1) >= std::min(chosen.size(1), experts_of_a_rank),
              "a row has too few slots: ", row_probabilities.size(1));
}

class CudaSparse final : public SparseOperations {
 public:
  void Route(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& bias, at::Tensor& chosen,
             at::Tensor& probabilities) const override {
    const int64_t tokens = CheckLogits(config, logits);
    CheckMatrix("chosen", chosen, tokens, config.top_k, kOnGpu);
    CheckMatrix("probabilities", probabilities, tokens, config.top_k, kOnGpu);
    if (bias.defined()) {
      CheckElements("bias", bias, config.experts, kOnGpu);
      TORCH_CHECK(config.score == RouterScore::kSigmoid, "a bias of experts needs sigmoid scores");
    }
    WithStatistics(logits, [&]<typename T>(T) {
      CheckStarted(cuda::Route(config, ElementsOf<T>(logits), bias.defined() ? ElementsOf<T>(bias) : nullptr,
                               tokens, MutableIntegers(chosen), MutableElementsOf<T>(probabilities), Now()),
                   "Route");
    });
  }

  void RouteBackward(const RouterConfig& config, const at::Tensor& logits, const at::Tensor& ranked,
                     const at::Tensor& chosen, const at::Tensor& grad_probabilities,
                     at::Tensor& grad_logits) const override {
    const int64_t tokens = CheckLogits(config, logits);
    CheckMatrix("ranked", ranked, tokens, config.top_k, kOnGpu);
    CheckMatrix("chosen", chosen, tokens, config.top_k, kOnGpu);
    CheckMatrix("grad_probabilities", grad_probabilities, tokens, config.top_k, kOnGpu);
    CheckMatrix("grad_logits", grad_logits, tokens, config.experts, kOnGpu);
    WithStatistics(logits, [&]<typename T>(T) {
      CheckStarted(cuda::RouteBackward(config, ElementsOf<T>(logits), Integers(ranked), Integers(chosen),
                                       ElementsOf<T>(grad_probabilities), tokens,
                                       MutableElementsOf<T>(grad_logits), Now()),
                   "RouteBackward");
    });
  }

  void CountTokens(const at::Tensor& chosen, at::Tensor& tokens, at::Tensor& dropped) const override {
    CheckMatrix("chosen", chosen, chosen.size(0), chosen.size(1), kOnGpu);
    CheckElements("tokens", tokens, tokens.numel(), kOnGpu);
    CheckElements("dropped", dropped, 1, kOnGpu);
    CheckExperts("CountTokens", tokens.numel());
    CheckStarted(
        cuda::CountTokens(Integers(chosen), chosen.numel(), tokens.numel(), tokens.mutable_data_ptr<double>(),
                          dropped.mutable_data_ptr<double>(), Now()),
        "CountTokens");
  }

  void UpdateRouterBias(const at::Tensor& tokens, const at::Tensor& applies, double rate,
                        at::Tensor& bias) const override {
    CheckElements("bias", bias, bias.numel(), kOnGpu);
    CheckElements("applies", applies, 1, kOnGpu);
    TORCH_CHECK(
        tokens.dim() == 2 && tokens.is_cuda() && tokens.size(1) == bias.numel() && tokens.stride(1) == 1,
        "tokens must have ", bias.numel(), " adjacent columns on a GPU, not ", tokens.sizes());
    WithStatistics(bias, [&]<typename T>(T) {
      CheckStarted(cuda::UpdateRouterBias(tokens.const_data_ptr<double>(), tokens.size(0), tokens.stride(0),
                                          bias.numel(), applies.const_data_ptr<bool>(), rate,
                                          MutableElementsOf<T>(bias), Now()),
                   "UpdateRouterBias");
    });
  }

  void RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const at::Tensor& logits,
                    at::Tensor& values, Workspace work) const override {
    const int64_t tokens = CheckSequences(config, losses, logits, work);
    CheckElements("values", values, 2, kOnGpu);
    WithStatistics(logits, [&]<typename T>(T) {
      CheckStarted(cuda::RouterLosses(config, losses, ElementsOf<T>(logits), tokens,
                                      values.mutable_data_ptr<double>(), work, Now()),
                   "RouterLosses");
    });
  }

  void RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses,
                            const at::Tensor& logits, at::Tensor& grad_logits,
                            Workspace work) const override {
    const int64_t tokens = CheckSequences(config, losses, logits, work);
    CheckMatrix("grad_logits", grad_logits, tokens, config.experts, kOnGpu);
    WithStatistics(logits, [&]<typename T>(T) {
      CheckStarted(cuda::RouterLossesBackward(config, losses, ElementsOf<T>(logits), tokens,
                                              MutableElementsOf<T>(grad_logits), work, Now()),
                   "RouterLossesBackward");
    });
  }

  void DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const at::Tensor& ranked,
                    at::Tensor& chosen, at::Tensor& probabilities, Workspace work) const override {
    CheckMatrix("ranked", ranked, ranked.size(0), ranked.size(1), kOnGpu);
    CheckMatrix("chosen", chosen, ranked.size(0), ranked.size(1), kOnGpu);
    CheckMatrix("probabilities", probabilities, ranked.size(0), ranked.size(1), kOnGpu);
    CheckExperts("DropOverflow", experts);
    CheckWork("DropOverflow", work, DropWorkBytes(kOnGpu, ranked.numel(), experts));
    WithStatistics(probabilities, [&]<typename T>(T) {
      CheckStarted(
          cuda::DropOverflow(policy, capacity, experts, Integers(ranked), ranked.numel(),
                             MutableIntegers(chosen), MutableElementsOf<T>(probabilities), work, Now()),
          "DropOverflow");
    });
  }

  void PlanRows(const at::Tensor& chosen, int64_t chunk, at::Tensor& counts, at::Tensor& row_of,
                Workspace work) const override {
    CheckElements("chosen", chosen, chosen.numel(), kOnGpu);
    CheckElements("counts", counts, counts.numel(), kOnGpu);
    CheckElements("row_of", row_of, chosen.numel(), kOnGpu);
    Sort("PlanRows", chosen, counts, chunk, row_of, work);
    if (chunk > 0) {
      counts.fill_(chunk);
    }
  }

  bool PlanWindow(const at::Tensor& counts, int64_t first, int64_t rows, at::Tensor& begins) const override {
    CheckElements("counts", counts, counts.numel(), kOnGpu);
    CheckElements("begins", begins, counts.numel() + 1, kOnGpu);
    CheckStarted(
        cuda::PlanWindow(Integers(counts), counts.numel(), first, rows, MutableIntegers(begins), Now()),
        "PlanWindow");
    return true;
  }

  void Permute(const at::Tensor& tokens, const at::Tensor& row_of, int64_t first,
               at::Tensor& rows) const override {
    const int64_t slots = SlotsOf(tokens, rows, row_of);
    CheckStarted(
        cuda::Permute(tokens.const_data_ptr(), tokens.size(0), slots, Integers(row_of), first, rows.size(0),
                      tokens.size(1), tokens.element_size(), rows.mutable_data_ptr(), Now()),
        "Permute");
  }

  void Unpermute(const at::Tensor& rows, const at::Tensor& row_of, int64_t first, bool add,
                 at::Tensor& tokens) const override {
    const int64_t slots = SlotsOf(tokens, rows, row_of);
    WithElementType(tokens, [&]<typename E>(E) {
      CheckStarted(
          cuda::Unpermute(ElementsOf<E>(rows), rows.size(0), Integers(row_of), first, add, tokens.size(0),
                          slots, tokens.size(1), MutableElementsOf<E>(tokens), Now()),
          "Unpermute");
    });
  }

  void PlanSends(const at::Tensor& chosen, int64_t experts_of_a_rank, int64_t chunk, at::Tensor& counts,
                 at::Tensor& place, Workspace work) const override {
    const int64_t tokens = chosen.size(0);
    const int64_t ranks = counts.numel();
    CheckMatrix("chosen", chosen, tokens, chosen.size(1), kOnGpu);
    CheckElements("counts", counts, ranks, kOnGpu);
    CheckMatrix("place", place, tokens, ranks, kOnGpu);
    CheckStarted(cuda::MarkRanks(Integers(chosen), tokens, chosen.size(1), experts_of_a_rank, ranks,
                                 MutableIntegers(place), Now()),
                 "PlanSends");
    Sort("PlanSends", place, counts, chunk, place, work);
  }

  void SendSlots(const at::Tensor& chosen, const at::Tensor& probabilities, const at::Tensor& place,
                 int64_t experts_of_a_rank, at::Tensor& slots, at::Tensor& row_probabilities) const override {
    CheckSlots(chosen, place, row_probabilities, probabilities, experts_of_a_rank);
    CheckMatrix("slots", slots, row_probabilities.size(0), row_probabilities.size(1), kOnGpu);
    WithStatistics(probabilities, [&]<typename T>(T) {
      CheckStarted(
          cuda::SendSlots(Integers(chosen), ElementsOf<T>(probabilities), Integers(place), chosen.size(0),
                          chosen.size(1), experts_of_a_rank, place.size(1), slots.size(0), slots.size(1),
                          MutableIntegers(slots), MutableElementsOf<T>(row_probabilities), Now()),
          "SendSlots");
    });
  }

  void CollectSlots(const at::Tensor& row_probabilities, const at::Tensor& chosen, const at::Tensor& place,
                    int64_t experts_of_a_rank, bool add, at::Tensor& probabilities) const override {
    CheckSlots(chosen, place, row_probabilities, probabilities, experts_of_a_rank);
    WithStatistics(probabilities, [&]<typename T>(T) {
      CheckStarted(
          cuda::CollectSlots(ElementsOf<T>(row_probabilities), Integers(chosen), Integers(place),
                             chosen.size(0), chosen.size(1), experts_of_a_rank, place.size(1),
                             row_probabilities.size(1), add, MutableElementsOf<T>(probabilities), Now()),
          "CollectSlots");
    });
  }

  void GroupedLinear(const at::Tensor& begins, const at::Tensor& x, const at::Tensor& weight, at::Tensor& y,
                     Workspace work) const override {
    if (!begins.is_cuda()) {
      ops::GroupedLinear(CudaOperations(), begins, x, weight, y, work);
      return;
    }
    const Groups groups(begins, weight);
    const int64_t inputs = weight.size(1);
    CheckMatrix("x", x, x.size(0), inputs, kOnGpu);
    CheckMatrix("y", y, x.size(0), groups.outputs, kOnGpu);
    WithElementType(x, [&]<typename E>(E) {
      CheckStarted(
          cuda::GroupedLinear(groups.begins, groups.experts, x.size(0), ElementsOf<E>(x),
                              ElementsOf<E>(weight), inputs, groups.outputs, MutableElementsOf<E>(y), Now()),
          "GroupedLinear");
    });
  }

  void GroupedLinearBackwardInput(const at::Tensor& begins, const at::Tensor& grad_y,
                                  const at::Tensor& weight, at::Tensor& grad_x,
                                  Workspace work) const override {
    if (!begins.is_cuda()) {
      ops::GroupedLinearBackwardInput(CudaOperations(), begins, grad_y, weight, grad_x, work);
      return;
    }
    const Groups groups(begins, weight);
    const int64_t inputs = weight.size(1);
    CheckMatrix("grad_y", grad_y, grad_y.size(0), groups.outputs, kOnGpu);
    CheckMatrix("grad_x", grad_x, grad_y.size(0), inputs, kOnGpu);
    WithElementType(grad_y, [&]<typename E>(E) {
      CheckStarted(cuda::GroupedLinearBackwardInput(groups.begins, groups.experts, grad_y.size(0),
                                                    ElementsOf<E>(grad_y), ElementsOf<E>(weight), inputs,
                                                    groups.outputs, MutableElementsOf<E>(grad_x), Now()),
                   "GroupedLinearBackwardInput");
    });
  }

  void GroupedLinearBackwardWeight(const at::Tensor& begins, const at::Tensor& grad_y, const at::Tensor& x,
                                   bool add, at::Tensor& grad_weight, Workspace work) const override {
    if (!begins.is_cuda()) {
      ops::GroupedLinearBackwardWeight(CudaOperations(), begins, grad_y, x, add, grad_weight, work);
      return;
    }
    const Groups groups(begins, grad_weight);
    const int64_t inputs = grad_weight.size(1);
    CheckMatrix("grad_y", grad_y, x.size(0), groups.outputs, kOnGpu);
    CheckMatrix("x", x, x.size(0), inputs, kOnGpu);
    WithElementType(x, [&]<typename E>(E) {
      const auto multiply = [&](auto* sums) {
        CheckStarted(
            cuda::GroupedLinearBackwardWeight(groups.begins, groups.experts, ElementsOf<E>(grad_y),
                                              ElementsOf<E>(x), inputs, groups.outputs, add, sums, Now()),
            "GroupedLinearBackwardWeight");
      };
      if (grad_weight.scalar_type() == x.scalar_type()) {
        multiply(MutableElementsOf<E>(grad_weight));
      } else {
        multiply(MutableElementsOf<Arithmetic<E>>(grad_weight));
      }
    });
  }

  void WeightedSwiGlu(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                      at::Tensor& activated) const override {
    const int64_t rows = activated.size(0);
    const int64_t inner = activated.size(1);
    CheckMatrix("gate_up", gate_up, rows, 2 * inner, kOnGpu);
    CheckElements("weights", weights, rows, kOnGpu);
    CheckMatrix("activated", activated, rows, inner, kOnGpu);
    WithElementType(gate_up, [&]<typename E>(E) {
      CheckStarted(
          cuda::WeightedSwiGlu(RowsThere(begins), ElementsOf<E>(gate_up), ElementsOf<Arithmetic<E>>(weights),
                               rows, inner, MutableElementsOf<E>(activated), Now()),
          "WeightedSwiGlu");
    });
  }

  void WeightedSwiGluBackward(const at::Tensor& begins, const at::Tensor& gate_up, const at::Tensor& weights,
                              const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                              at::Tensor& activated, at::Tensor& grad_weights) const override {
    const int64_t rows = grad_activated.size(0);
    const int64_t inner = grad_activated.size(1);
    CheckMatrix("gate_up", gate_up, rows, 2 * inner, kOnGpu);
    CheckElements("weights", weights, rows, kOnGpu);
    CheckMatrix("grad_activated", grad_activated, rows, inner, kOnGpu);
    CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner, kOnGpu);
    CheckMatrix("activated", activated, rows, inner, kOnGpu);
    CheckElements("grad_weights", grad_weights, rows, kOnGpu);
    WithElementType(gate_up, [&]<typename E>(E) {
      CheckStarted(
          cuda::WeightedSwiGluBackward(
              RowsThere(begins), ElementsOf<E>(gate_up), ElementsOf<Arithmetic<E>>(weights),
              ElementsOf<E>(grad_activated), rows, inner, MutableElementsOf<E>(grad_gate_up),
              MutableElementsOf<E>(activated), MutableElementsOf<Arithmetic<E>>(grad_weights), Now()),
          "WeightedSwiGluBackward");
    });
  }

 private:
  // Returns the tokens.
  static int64_t CheckLogits(const RouterConfig& config, const at::Tensor& logits) {
    CheckRouter(config);
    CheckExperts("a router", config.experts);
    CheckMatrix("logits", logits, logits.size(0), config.experts, kOnGpu);
    return logits.size(0);
  }

  static int64_t CheckSequences(const RouterConfig& config, const RouterLossConfig& losses,
                                const at::Tensor& logits, Workspace work) {
    const int64_t tokens = CheckLogits(config, logits);
    TORCH_CHECK(losses.sequence_length > 0 && tokens % losses.sequence_length == 0, tokens,
                " tokens are no whole sequences of ", losses.sequence_length);
    CheckWork("RouterLosses", work,
              RouterLossesWorkBytes(kOnGpu, tokens, tokens / losses.sequence_length, config.experts));
    return tokens;
  }

  static void Sort(const char* operation, const at::Tensor& group_of, at::Tensor& counts, int64_t chunk,
                   at::Tensor& row_of, Workspace work) {
    CheckExperts(operation, counts.numel());
    CheckWork(operation, work, SortWorkBytes(kOnGpu, group_of.numel(), counts.numel()));
    CheckStarted(cuda::SortSlots(Integers(group_of), group_of.numel(), counts.numel(), chunk,
                                 MutableIntegers(counts), MutableIntegers(row_of), work, Now()),
                 operation);
  }

  static const int64_t* RowsThere(const at::Tensor& begins) {
    CheckElements("begins", begins, begins.numel(), kOnGpu);
    return Integers(begins) + begins.numel() - 1;
  }
};

}  // namespace

const SparseOperations& CudaSparseOperations() {
  static const CudaSparse operations;
  return operations;
}

}  // namespace tandem::ops
