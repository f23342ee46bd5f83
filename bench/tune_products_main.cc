// SPDX-License-Identifier: Apache-2.0
// Lines for ops/cuda/products.txt, measured on this machine's first GPU:
//   tandem-tune-products TURNS SHAPE ...        SHAPE: TOKENS,OUTPUTS,INPUTS of y = x W^T, in bfloat16
// For each shape the products of a layer: y with and without a residual, grad_x = grad_y W, grad_weight =
// grad_y^T x in bfloat16 and in float. The algorithms that cuBLASLt proposes run in turns, TURNS of them;
// where another than its first is faster by more than a hundredth, by the medians, its line is printed. What
// was measured goes to stderr, a JSON object a product.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "ops/cuda/matrix_product.h"
#include "ops/linear_work.h"

namespace {

using Candidate = tandem::ops::cuda::MatrixProduct::Candidate;

constexpr double kWorthIt = 0.99;

class Tuner {
 public:
  explicit Tuner(int turns)
      : turns_(turns), memory_(at::empty({tandem::ops::kGpuLinearWorkBytes}, Of(at::kByte))) {}

  void Tune(int64_t tokens, int64_t outputs, int64_t inputs) {
    const at::Tensor x = Random(tokens, inputs);
    const at::Tensor weight = Random(outputs, inputs);
    at::Tensor y = Random(tokens, outputs);
    at::Tensor grad_x = Random(tokens, inputs);
    Measure("y", x, weight.t(), {}, y);
    Measure("y, residual", x, weight.t(), Random(tokens, outputs), y);
    Measure("grad x", y, weight, {}, grad_x);
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      at::Tensor grad_weight = at::empty({outputs, inputs}, Of(type));
      Measure(type == at::kFloat ? "grad weight in float" : "grad weight", y.t(), x, {}, grad_weight);
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

 private:
  static at::TensorOptions Of(at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); }
  static at::Tensor Random(int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, Of(at::kBFloat16));
  }

  void Measure(const char* name, const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend,
               at::Tensor& output) {
    const std::vector<Candidate> candidates = product_.Measure(
        a, b, addend, output, turns_, {.begin = memory_.mutable_data_ptr(), .bytes = memory_.numel()},
        c10::cuda::getCurrentCUDAStream().stream());
    const auto best = std::min_element(candidates.begin(), candidates.end(),
                                       [](const Candidate& a, const Candidate& b) { return a.ms < b.ms; });
    const double of_first = best->ms / candidates.front().ms;
    if (of_first < kWorthIt) {
      std::printf("%s\n", best->line.c_str());
      std::fflush(stdout);
    }
    std::vector<double> all;
    for (const Candidate& candidate : candidates) all.push_back(candidate.ms);
    const nlohmann::ordered_json line = {{"product", name},
                                         {"m", a.size(0)},
                                         {"k", a.size(1)},
                                         {"n", b.size(1)},
                                         {"first_ms", candidates.front().ms},
                                         {"best_ms", best->ms},
                                         {"best", best - candidates.begin()},
                                         {"of_first", of_first},
                                         {"all_ms", all}};
    std::fprintf(stderr, "%s\n", line.dump().c_str());
  }

  const int turns_;
  at::Tensor memory_;
  tandem::ops::cuda::MatrixProduct product_;
};

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 2 ? std::atoi(argv[1]) : 0;
  if (turns <= 0) {
    std::fprintf(stderr, "usage: tandem-tune-products TURNS TOKENS,OUTPUTS,INPUTS ...\n");
    return 2;
  }
  const c10::InferenceMode inference;
  Tuner tuner(turns);
  for (int i = 2; i < argc; ++i) {
    long long tokens = 0;
    long long outputs = 0;
    long long inputs = 0;
    if (std::sscanf(argv[i], "%lld,%lld,%lld", &tokens, &outputs, &inputs) != 3) {
      std::fprintf(stderr, "%s: allowed: TOKENS,OUTPUTS,INPUTS\n", argv[i]);
      return 2;
    }
    tuner.Tune(tokens, outputs, inputs);
  }
  return 0;
}
