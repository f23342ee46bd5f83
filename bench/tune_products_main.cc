// SPDX-License-Identifier: Apache-2.0
// What the matrix products of a model's layers lose to the best algorithm that cuBLASLt has for them, and
// lines for ops/cuda/products.txt that mend it, measured on this machine's first GPU:
//   tandem-tune-products TOKENS,OUTPUTS,INPUTS,SECONDS ...      of y = x W^T, in bfloat16
// For each shape the products of a layer: y with and without a residual, grad_x = grad_y W, grad_weight =
// grad_y^T x in bfloat16 and in float. Candidates are what the build's table says, what cuBLASLt's rules
// propose, what was best for the shapes before this one, and behind them, in a random order, every algorithm
// with every tile, number of stages, cluster, and the other settings that cuBLASLt names. They are tried once
// for at most SECONDS a product; the fastest eight, the table's and the rules' first are then timed in turns,
// and those that do not repeat their bits, or whose result is not the rules', are none for a table.
// A JSON object a product goes to stderr: the medians, and how much the table's (or, where it is silent, the
// rules' first) reaches of the best. A line of the table goes to stdout where the best is faster than the
// rules' first by more than a hundredth.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/median.h"
#include "device/cuda/check.h"
#include "nlohmann/json.hpp"
#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"
#include "ops/product_table.h"

namespace {

using tandem::bench::Median;
using tandem::device::CheckCuda;
using tandem::ops::ProductTable;
using tandem::ops::Workspace;
using tandem::ops::cuda::CheckProduct;
using tandem::ops::cuda::ProductMachine;
using tandem::ops::cuda::ProductOperands;
using tandem::ops::cuda::ProductPlan;
using Algorithm = ProductTable::Algorithm;
using Clock = std::chrono::steady_clock;

constexpr double kWorthIt = 0.99;
constexpr int kTurns = 9;
constexpr size_t kFinalists = 8;
constexpr size_t kRemembered = 24;  // of a shape, for those behind it
constexpr int kMostProposed = 64;
constexpr double kRounding = 1.0 / 128;  // twice that of bfloat16, of a norm

template <typename T>
std::vector<T> Capabilities(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoCapAttributes_t which) {
  size_t bytes = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, which, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<T> values(bytes / sizeof(T));
  if (!values.empty()) {
    cublasLtMatmulAlgoCapGetAttribute(&algorithm, which, values.data(), bytes, &bytes);
  }
  return values;
}

// Every algorithm that cuBLASLt has for such types, with every setting that it names, in a random order.
std::vector<Algorithm> AllAlgorithms(cublasLtHandle_t handle, cudaDataType_t type, cudaDataType_t output) {
  std::array<int, 256> ids{};
  int found = 0;
  CheckProduct(cublasLtMatmulAlgoGetIds(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type, output, output,
                                        static_cast<int>(ids.size()), ids.data(), &found),
               "algorithms");
  std::vector<Algorithm> all;
  for (int i = 0; i < found; ++i) {
    cublasLtMatmulAlgo_t base{};
    if (cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type, output, output, ids[i],
                               &base) != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    std::vector<uint32_t> tiles = Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_TILE_IDS);
    std::vector<uint32_t> stages = Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_STAGES_IDS);
    if (tiles.empty()) {
      tiles = {CUBLASLT_MATMUL_TILE_UNDEFINED};
    }
    if (stages.empty()) {
      stages = {CUBLASLT_MATMUL_STAGES_UNDEFINED};
    }
    const std::vector<int32_t> custom = Capabilities<int32_t>(base, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
    const std::vector<uint32_t> swizzles =
        Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
    const uint32_t most_custom = custom.empty() ? 0 : static_cast<uint32_t>(std::min(custom[0], 31));
    const uint32_t most_swizzle = swizzles.empty() ? 0 : swizzles[0];
    Algorithm a{.id = static_cast<uint32_t>(ids[i]), .splits = 1};
    for (const uint32_t tile : tiles) {
      for (const uint32_t stage : stages) {
        for (uint32_t cluster = 0; cluster < CUBLASLT_CLUSTER_SHAPE_END; ++cluster) {
          for (uint32_t option = 0; option <= most_custom; ++option) {
            for (uint32_t swizzle = 0; swizzle <= most_swizzle; ++swizzle) {
              a.tile = tile;
              a.stages = stage;
              a.cluster = cluster;
              a.custom = option;
              a.swizzle = swizzle;
              all.push_back(a);
            }
          }
        }
      }
    }
  }
  std::shuffle(all.begin(), all.end(), std::mt19937(2026));
  return all;
}

class Tuner {
 public:
  Tuner() : memory_(at::empty({tandem::ops::kGpuLinearWorkBytes}, Of(at::kByte))) {
    CheckProduct(cublasLtCreate(&handle_), "no handle");
    for (cudaEvent_t& event : events_) {
      CheckCuda(cudaEventCreate(&event), "event");
    }
  }
  ~Tuner() {
    for (const cudaEvent_t event : events_) {
      cudaEventDestroy(event);
    }
    cublasLtDestroy(handle_);
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void Tune(int64_t tokens, int64_t outputs, int64_t inputs, double seconds) {
    const at::Tensor x = Random(tokens, inputs);
    const at::Tensor weight = Random(outputs, inputs);
    at::Tensor y = Random(tokens, outputs);
    at::Tensor grad_x = Random(tokens, inputs);
    Search("y", x, weight.t(), {}, y, seconds);
    Search("y, residual", x, weight.t(), Random(tokens, outputs), y, seconds);
    Search("grad x", y, weight, {}, grad_x, seconds);
    for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
      at::Tensor grad_weight = at::empty({outputs, inputs}, Of(type));
      Search(type == at::kFloat ? "grad weight in float" : "grad weight", y.t(), x, {}, grad_weight, seconds);
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

 private:
  struct Candidate {
    Algorithm algorithm;
    std::unique_ptr<ProductPlan> plan;
    double ms = 0;
    bool sound = true;  // repeats its bits, and computes what the rules' first does
  };

  static at::TensorOptions Of(at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); }
  static at::Tensor Random(int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, Of(at::kBFloat16));
  }

  void Search(const char* name, const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend,
              at::Tensor& output, double seconds) {
    const ProductOperands product(a, b, addend, output);
    std::vector<Algorithm>& good = good_[{product.left.transposed, product.right.transposed}];
    std::vector<Algorithm>& all = all_[product.output.type];
    if (all.empty()) {
      all = AllAlgorithms(handle_, product.left.type, product.output.type);
    }
    const ProductPlan rules(handle_, product, nullptr);
    const std::vector<Algorithm> proposed = rules.Proposed(handle_, product, kMostProposed);
    const Algorithm* const of_table = ProductTable::OfBuild().Find(ProductMachine(), product.text());

    std::vector<Algorithm> order = proposed;
    const Algorithm chosen = of_table != nullptr ? *of_table : proposed.front();
    order.push_back(chosen);
    order.insert(order.end(), good.begin(), good.end());
    const size_t before_random = order.size();
    order.insert(order.end(), all.begin(), all.end());

    std::vector<Candidate> tried;
    const auto has = [&](const Algorithm& algorithm) {
      return std::any_of(tried.begin(), tried.end(),
                         [&](const Candidate& candidate) { return candidate.algorithm == algorithm; });
    };
    const Clock::time_point begin = Clock::now();
    size_t looked_at = 0;
    for (const Algorithm& algorithm : order) {
      if (looked_at >= before_random &&
          std::chrono::duration<double>(Clock::now() - begin).count() > seconds) {
        break;
      }
      ++looked_at;
      if (!rules.Takes(handle_, algorithm) || has(algorithm)) {
        continue;
      }
      Candidate candidate{algorithm, std::make_unique<ProductPlan>(handle_, product, &algorithm)};
      try {
        candidate.ms = Time(*candidate.plan, product);
      } catch (const c10::Error&) {
        continue;  // cuBLASLt does not run it after all
      }
      tried.push_back(std::move(candidate));
    }
    const size_t count = tried.size();
    std::stable_sort(tried.begin(), tried.end(),
                     [](const Candidate& left, const Candidate& right) { return left.ms < right.ms; });
    good.clear();
    for (size_t i = 0; i < std::min(tried.size(), kRemembered); ++i) {
      good.push_back(tried[i].algorithm);
    }
    // And the two that they are compared with.
    std::vector<Candidate> finalists;
    for (size_t i = 0; i < tried.size(); ++i) {
      const Algorithm& algorithm = tried[i].algorithm;
      if (i < kFinalists || algorithm == proposed.front() || algorithm == chosen) {
        finalists.push_back(std::move(tried[i]));
      }
    }
    // A table holds what is the same in every run, and what the rules' first computes.
    RunPlan(rules, product);
    const at::Tensor expected = output.clone();
    for (Candidate& candidate : finalists) {
      candidate.sound =
          candidate.algorithm == proposed.front() || IsSound(candidate, product, expected, output);
    }
    std::vector<std::vector<double>> times(finalists.size());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (size_t i = 0; i < finalists.size(); ++i) {
        times[i].push_back(Time(*finalists[i].plan, product));
      }
    }
    double first_ms = 0;
    double chosen_ms = 0;
    for (size_t i = 0; i < finalists.size(); ++i) {
      finalists[i].ms = Median(times[i]);
      if (finalists[i].algorithm == proposed.front()) {
        first_ms = finalists[i].ms;
      }
      if (finalists[i].algorithm == chosen) {
        chosen_ms = finalists[i].ms;
      }
    }
    const auto best = std::min_element(finalists.begin(), finalists.end(),
                                       [](const Candidate& left, const Candidate& right) {
                                         return left.sound != right.sound ? left.sound : left.ms < right.ms;
                                       });
    Print(name, product, first_ms, chosen_ms, *best, of_table != nullptr, looked_at, count, order.size());
    if (best->ms < kWorthIt * first_ms) {
      std::printf("%s\n", ProductTable::Line(ProductMachine(), product.text(), best->algorithm).c_str());
      std::fflush(stdout);
    }
  }

  static void Print(const char* name, const ProductOperands& product, double first_ms, double chosen_ms,
                    const Candidate& best, bool in_table, size_t looked_at, size_t tried, size_t all) {
    const double flops = 2.0 * static_cast<double>(product.output.rows) *
                         static_cast<double>(product.output.columns) *
                         static_cast<double>(product.left.columns);
    const nlohmann::ordered_json line = {{"product", name},
                                         {"m", product.output.rows},
                                         {"k", product.left.columns},
                                         {"n", product.output.columns},
                                         {"first_ms", first_ms},
                                         {"chosen_ms", chosen_ms},
                                         {"in_table", in_table},
                                         {"best_ms", best.ms},
                                         {"chosen_of_best", best.ms / chosen_ms},
                                         {"best_tflop_per_s", flops / best.ms * 1e-9},
                                         {"looked_at", looked_at},
                                         {"tried", tried},
                                         {"all", all}};
    std::fprintf(stderr, "%s\n", line.dump().c_str());
  }

  // Whether it gives the same bits three times, and but for rounding `expected`. output: where it writes.
  bool IsSound(const Candidate& candidate, const ProductOperands& product, const at::Tensor& expected,
               at::Tensor& output) {
    output.fill_(std::numeric_limits<double>::quiet_NaN());  // what it leaves out shows
    RunPlan(*candidate.plan, product);
    const at::Tensor result = output.clone();
    const char* fault = nullptr;
    for (int repeat = 0; repeat < 2; ++repeat) {
      RunPlan(*candidate.plan, product);
      if (!at::equal(result, output)) {
        fault = "does not repeat its bits";
      }
    }
    const double difference = result.sub(expected).norm(2, at::kDouble).item<double>();
    const bool near =
        difference <= kRounding * expected.norm(2, at::kDouble).item<double>();  // not where NaN
    if (!near) {
      fault = "computes something else";
    }
    if (fault == nullptr) {
      return true;
    }
    std::fprintf(stderr, "%s: not for a table, as it %s\n",
                 ProductTable::Line(ProductMachine(), product.text(), candidate.algorithm).c_str(), fault);
    return false;
  }

  void RunPlan(const ProductPlan& plan, const ProductOperands& product) {
    const Workspace work{.begin = memory_.mutable_data_ptr(), .bytes = memory_.numel()};
    plan.Run(handle_, product, work, c10::cuda::getCurrentCUDAStream().stream());
  }

  // Milliseconds of one call behind another.
  double Time(const ProductPlan& plan, const ProductOperands& product) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    RunPlan(plan, product);
    CheckCuda(cudaEventRecord(events_[0], stream), "event");
    RunPlan(plan, product);
    CheckCuda(cudaEventRecord(events_[1], stream), "event");
    CheckCuda(cudaEventSynchronize(events_[1]), "a product");
    float ms = 0;
    CheckCuda(cudaEventElapsedTime(&ms, events_[0], events_[1]), "time");
    return ms;
  }

  cublasLtHandle_t handle_ = nullptr;
  at::Tensor memory_;
  std::array<cudaEvent_t, 2> events_{};
  std::map<int64_t, std::vector<Algorithm>> all_;  // by the output's type
  // Of the last shape, best first, by which of the factors are transposed.
  std::map<std::pair<bool, bool>, std::vector<Algorithm>> good_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tandem-tune-products TOKENS,OUTPUTS,INPUTS,SECONDS ...\n");
    return 2;
  }
  const c10::InferenceMode inference;
  Tuner tuner;
  for (int i = 1; i < argc; ++i) {
    long long tokens = 0;
    long long outputs = 0;
    long long inputs = 0;
    double seconds = 0;
    if (std::sscanf(argv[i], "%lld,%lld,%lld,%lf", &tokens, &outputs, &inputs, &seconds) != 4) {
      std::fprintf(stderr, "%s: allowed: TOKENS,OUTPUTS,INPUTS,SECONDS\n", argv[i]);
      return 2;
    }
    tuner.Tune(tokens, outputs, inputs, seconds);
  }
  return 0;
}
