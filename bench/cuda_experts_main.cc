// SPDX-License-Identifier: Apache-2.0
// Times the operations of sparse layers on this machine's first GPU, in bfloat16:
//   tandem-bench-experts [TOKENS EXPERTS RANKS EXPERTS_PER_TOKEN HIDDEN INNER]
// By default 8192 128 2 8 2048 768: a microbatch of a layer of Qwen3-30B-A3B whose experts two ranks share.
// Measures one rank with the number of rows of an even load. Each token chooses its experts at random, so
// experts have almost the same number of rows. For "known", every expert has exactly the same number of rows,
// and the host knows it, as with padded experts. Prints one JSON object a line, as tandem-bench-kernels does:
// first the GPU's measured speed, then each operation with its share of that bound. "aten_ms" is the time of
// LibTorch's own grouped product (CUTLASS) on the same numbers.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/gpu_bounds.h"
#include "ops/cuda/operations.h"
#include "ops/operations.h"
#include "ops/sparse_work.h"
#include "ops/tensors.h"

namespace {

using tandem::bench::Bounds;
using tandem::bench::Bytes;
using tandem::bench::ShapeRows;
using tandem::ops::DeviceKind;
using tandem::ops::Workspace;
namespace ops = tandem::ops;

struct Shape {
  int64_t tokens = 8192;
  int64_t experts = 128;
  int64_t ranks = 2;
  int64_t top_k = 8;
  int64_t hidden = 2048;
  int64_t inner = 768;
};

const at::TensorOptions kBf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
const at::TensorOptions kFloat = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
const at::TensorOptions kIntegers = at::TensorOptions(at::kCUDA).dtype(at::kLong);

class Bench {
 public:
  Bench(const Shape& shape, const Bounds& bounds)
      : s_(shape),
        results_(absl::StrCat(shape.tokens, " tokens, ", shape.experts, " experts"), bounds),
        local_(shape.experts / shape.ranks),
        seen_(shape.ranks * shape.tokens),
        width_(std::min(shape.top_k, local_)),
        logits_(at::randn({shape.tokens, shape.experts}, kFloat)),
        chosen_(at::empty({shape.tokens, shape.top_k}, kIntegers)),
        probabilities_(at::empty({shape.tokens, shape.top_k}, kFloat)),
        counts_(at::empty({local_}, kIntegers)),
        row_of_(at::empty({seen_ * width_}, kIntegers)),
        begins_(at::empty({local_ + 1}, kIntegers)) {}

  void Run() {
    Router();
    Sends();
    Rows();
    Products();
    Activation();
  }

 private:
  Workspace Work(int64_t bytes) {
    if (work_.numel() < bytes) {
      work_ = at::empty({bytes}, kBf16.dtype(at::kByte));
    }
    return {.begin = work_.mutable_data_ptr(), .bytes = bytes};
  }

  void Router() {
    const ops::RouterConfig config{.experts = s_.experts, .top_k = s_.top_k, .normalize = true};
    const ops::RouterLossConfig losses{.sequence_length = s_.tokens, .balance = 0.01, .z = 0.001};
    at::Tensor grad = at::empty_like(logits_);
    at::Tensor values = at::empty({2}, kFloat.dtype(at::kDouble));
    at::Tensor tokens = at::empty({s_.experts}, kFloat.dtype(at::kDouble));
    at::Tensor dropped = at::empty({1}, kFloat.dtype(at::kDouble));
    const Workspace work = Work(ops::RouterLossesWorkBytes(DeviceKind::kGpu, s_.tokens, 1, s_.experts));
    results_.Moves("route", Bytes({logits_, chosen_, probabilities_}),
                   [&] { ops_.Route(config, logits_, {}, chosen_, probabilities_)(); });
    results_.Moves("route backward", Bytes({logits_, chosen_, chosen_, probabilities_, grad}),
                   [&] { ops_.RouteBackward(config, logits_, chosen_, chosen_, probabilities_, grad)(); });
    results_.Moves("router losses", Bytes({logits_}),
                   [&] { ops_.RouterLosses(config, losses, logits_, /*counts=*/{}, values, work)(); });
    results_.Moves("router losses backward", Bytes({logits_, grad, grad}), [&] {
      ops_.RouterLossesBackward(config, losses, logits_, {}, /*targets=*/{}, grad, work)();
    });
    results_.Moves("count tokens", Bytes({chosen_}), [&] { ops_.CountTokens(chosen_, tokens, dropped)(); });
  }

  // What a rank sends, and what it receives where all ranks have the same router.
  void Sends() {
    at::Tensor place = at::empty({s_.tokens, s_.ranks}, kIntegers);
    at::Tensor counts = at::empty({s_.ranks}, kIntegers);
    const at::Tensor tokens = at::randn({s_.tokens, s_.hidden}, kBf16);
    at::Tensor sent = at::empty({seen_, s_.hidden}, kBf16);
    at::Tensor back = at::empty_like(tokens);
    at::Tensor slots = at::empty({seen_, width_}, kIntegers);
    at::Tensor slot_probabilities = at::empty({seen_, width_}, kFloat);
    const Workspace work = Work(ops::SortWorkBytes(DeviceKind::kGpu, s_.tokens * s_.ranks, s_.ranks));
    results_.Moves("plan sends", Bytes({chosen_, place}),
                   [&] { ops_.PlanSends(chosen_, local_, s_.tokens, counts, place, work)(); });
    results_.Moves("pack sends", Bytes({tokens, sent, place}),
                   [&] { ops_.Permute(tokens, place, 0, sent)(); });
    results_.Moves("send slots", Bytes({chosen_, probabilities_, slots, slot_probabilities}), [&] {
      ops_.SendSlots(chosen_, probabilities_, place, local_, slots, slot_probabilities)();
    });
    results_.Moves("add returned", Bytes({sent, back, place}),
                   [&] { ops_.Unpermute(sent, place, 0, /*add=*/false, back)(); });
    // The first rank's chunk, from each rank.
    received_slots_ = slots.narrow(0, 0, s_.tokens).repeat({s_.ranks, 1}).contiguous();
  }

  void Rows() {
    rows_ = s_.tokens * s_.top_k;
    const at::Tensor tokens = at::randn({seen_, s_.hidden}, kBf16);
    at::Tensor rows = at::empty({rows_, s_.hidden}, kBf16);
    at::Tensor back = at::empty_like(tokens);
    const Workspace work = Work(ops::SortWorkBytes(DeviceKind::kGpu, seen_ * width_, local_));
    results_.Moves("plan rows", Bytes({received_slots_, row_of_}), [&] {
      ops_.PlanRows(received_slots_, /*chunk=*/0, counts_, row_of_, work)();
      ops_.PlanWindow(counts_, 0, rows_, begins_)();
    });
    there_ = begins_[local_].item<int64_t>();
    const double moved = Bytes({tokens, row_of_}) + static_cast<double>(there_ * s_.hidden * 2);
    results_.Moves("permute", moved, [&] { ops_.Permute(tokens, row_of_, 0, rows)(); });
    results_.Moves("unpermute", moved, [&] { ops_.Unpermute(rows, row_of_, 0, /*add=*/false, back)(); });
  }

  void Products() {
    Product("gate and up", s_.hidden, 2 * s_.inner);
    Product("down", s_.inner, s_.hidden);
  }

  void Product(const std::string& name, int64_t inputs, int64_t outputs) {
    const at::Tensor x = at::randn({rows_, inputs}, kBf16);
    const at::Tensor weight = at::randn({local_ * outputs, inputs}, kBf16);
    at::Tensor y = at::randn({rows_, outputs}, kBf16);
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_weight = at::empty_like(weight);
    const at::Tensor by_expert = weight.view({local_, outputs, inputs});
    const at::Tensor ends = begins_.narrow(0, 1, local_).to(at::kInt);
    const double flops = 2.0 * static_cast<double>(there_) * static_cast<double>(inputs * outputs);
    const int64_t each = rows_ / local_;
    const at::Tensor known = at::arange(0, each * (local_ + 1), each, at::TensorOptions(at::kLong));
    const double known_flops =
        2.0 * static_cast<double>(each * local_) * static_cast<double>(inputs * outputs);
    const Workspace work = Work(ops::GroupedWorkBytes(DeviceKind::kGpu, 2, /*known_rows=*/true));
    results_.Computes(name + ", known", known_flops,
                      [&] { ops_.GroupedLinear(known, x, weight, y, work)(); });
    results_.Computes(name + " grad x, known", known_flops,
                      [&] { ops_.GroupedLinearBackwardInput(known, y, weight, grad_x, work)(); });
    results_.Computes(name + " grad weight, known", known_flops, [&] {
      ops_.GroupedLinearBackwardWeight(known, y, x, /*add=*/false, grad_weight, work)();
    });
    // Where the GPU reads how many rows there are.
    results_.Computes(
        name, flops, [&] { ops_.GroupedLinear(begins_, x, weight, y, work)(); },
        [&] { at::_grouped_mm(x, by_expert.transpose(1, 2), ends); });
    results_.Computes(
        name + " grad x", flops, [&] { ops_.GroupedLinearBackwardInput(begins_, y, weight, grad_x, work)(); },
        [&] { at::_grouped_mm(y, by_expert, ends); });
    results_.Computes(
        name + " grad weight", flops,
        [&] { ops_.GroupedLinearBackwardWeight(begins_, y, x, /*add=*/false, grad_weight, work)(); },
        [&] { at::_grouped_mm(y.t(), x, ends); });
    at::Tensor sums = at::zeros(grad_weight.sizes(), kFloat);
    results_.Computes(name + " grad weight, added to float", flops,
                      [&] { ops_.GroupedLinearBackwardWeight(begins_, y, x, /*add=*/true, sums, work)(); });
  }

  void Activation() {
    const at::Tensor gate_up = at::randn({rows_, 2 * s_.inner}, kBf16);
    const at::Tensor weights = at::rand({rows_}, kFloat);
    at::Tensor activated = at::randn({rows_, s_.inner}, kBf16);
    at::Tensor grad_gate_up = at::empty_like(gate_up);
    at::Tensor grad_weights = at::empty_like(weights);
    results_.Moves("weighted swiglu", Bytes({gate_up, activated}),
                   [&] { ops_.SwiGlu(gate_up, activated, weights, begins_)(); });
    results_.Moves("weighted swiglu backward", Bytes({gate_up, gate_up, activated, activated}), [&] {
      ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated, weights, grad_weights, begins_)();
    });
  }

  const Shape s_;
  const ShapeRows results_;
  const ops::Operations& ops_ = ops::CudaOperations();
  const int64_t local_;
  const int64_t seen_;
  const int64_t width_;
  const at::Tensor logits_;
  at::Tensor chosen_;
  at::Tensor probabilities_;
  at::Tensor counts_;
  at::Tensor row_of_;
  at::Tensor begins_;
  at::Tensor received_slots_;
  at::Tensor work_ = at::zeros({0}, kBf16.dtype(at::kByte));
  int64_t rows_ = 0;
  int64_t there_ = 0;  // of them, those that an expert has
};

}  // namespace

int main(int argc, char** argv) {
  const c10::InferenceMode no_graph;
  Shape shape;
  if (argc == 7) {
    int64_t* const sizes[] = {&shape.tokens, &shape.experts, &shape.ranks,
                              &shape.top_k,  &shape.hidden,  &shape.inner};
    for (int i = 0; i < 6; ++i) {
      *sizes[i] = std::atoll(argv[i + 1]);
    }
  } else if (argc != 1) {
    std::fprintf(stderr,
                 "usage: tandem-bench-experts [TOKENS EXPERTS RANKS EXPERTS_PER_TOKEN HIDDEN INNER]\n");
    return 2;
  }
  Bench(shape, tandem::bench::MeasureBounds()).Run();
  return 0;
}
