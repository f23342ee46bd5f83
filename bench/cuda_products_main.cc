// SPDX-License-Identifier: Apache-2.0
// What the matrix products of a model's layers lose to the best algorithm that cuBLASLt has for them:
//   tandem-bench-products SECONDS SHAPE ...        SHAPE: TOKENS,OUTPUTS,INPUTS of y = x W^T, in bfloat16
// For each shape its three products: y, grad_x = grad_y W, grad_weight = grad_y^T x. Candidates are what
// cuBLASLt's rules propose, best first, and behind them, in a random order, every algorithm with every tile,
// number of stages, cluster, and the other settings that it names, as far as cuBLASLt takes it for the
// product; they are tried once for at most SECONDS a product, and the fastest eight are then timed in turns
// with the rules' first. Prints one JSON object a product.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "device/cuda/check.h"
#include "nlohmann/json.hpp"
#include "ops/linear_work.h"

namespace {

using tandem::device::CheckCuda;
using Clock = std::chrono::steady_clock;

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, cublasLtGetStatusString(status));
  std::exit(1);
}

// output = op(a) op(b) as cuBLASLt says it, with columns that are adjacent; all of bfloat16.
struct Product {
  std::string name;
  bool transpose_a;
  bool transpose_b;
  int64_t m;
  int64_t n;
  int64_t k;
};

struct Candidate {
  cublasLtMatmulAlgo_t algorithm{};
  double ms = 0;
};

class Search {
 public:
  Search(cublasLtHandle_t handle, const Product& product) : handle_(handle), p_(product) {
    Check(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, p_.transpose_a);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, p_.transpose_b);
    a_ = Layout(p_.transpose_a ? p_.k : p_.m, p_.transpose_a ? p_.m : p_.k);
    b_ = Layout(p_.transpose_b ? p_.n : p_.k, p_.transpose_b ? p_.k : p_.n);
    d_ = Layout(p_.m, p_.n);
    const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    left_ = at::randn({p_.m * p_.k}, options);
    right_ = at::randn({p_.k * p_.n}, options);
    output_ = at::empty({p_.m * p_.n}, options);
    work_ = at::empty({tandem::ops::kGpuLinearWorkBytes}, options.dtype(at::kByte));
    for (cudaEvent_t& event : events_) CheckCuda(cudaEventCreate(&event), "event");
  }
  ~Search() {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(description_);
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  nlohmann::ordered_json Run(double seconds) {
    std::vector<Candidate> candidates = Proposed();
    const size_t proposed = candidates.size();
    Candidate first = candidates.front();
    const std::vector<Candidate> all = All();
    candidates.insert(candidates.end(), all.begin(), all.end());
    const Clock::time_point begin = Clock::now();
    size_t tried = 0;
    for (Candidate& candidate : candidates) {
      if (tried >= 8 && std::chrono::duration<double>(Clock::now() - begin).count() > seconds) break;
      candidate.ms = Time(candidate);
      ++tried;
    }
    candidates.resize(tried);
    std::erase_if(candidates, [](const Candidate& c) { return c.ms <= 0; });
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.ms < b.ms; });
    candidates.resize(std::min<size_t>(8, candidates.size()));
    std::vector<std::vector<double>> times(candidates.size() + 1);
    for (int turn = 0; turn < 9; ++turn) {
      times[0].push_back(Time(first));
      for (size_t i = 0; i < candidates.size(); ++i) times[i + 1].push_back(Time(candidates[i]));
    }
    const auto median = [](std::vector<double> v) {
      std::nth_element(v.begin(), v.begin() + 4, v.end());
      return v[4];
    };
    size_t best = 0;
    for (size_t i = 1; i < times.size(); ++i) best = median(times[i]) < median(times[best]) ? i : best;
    const Candidate& chosen = best == 0 ? first : candidates[best - 1];
    const double first_ms = median(times[0]);
    const double best_ms = median(times[best]);
    return {{"product", p_.name},
            {"m", p_.m},
            {"n", p_.n},
            {"k", p_.k},
            {"first_ms", first_ms},
            {"best_ms", best_ms},
            {"of_best", best_ms / first_ms},
            {"tflop_per_s", 2e-9 * static_cast<double>(p_.m) * static_cast<double>(p_.n) *
                                static_cast<double>(p_.k) / best_ms},
            {"proposed", proposed},
            {"all", all.size()},
            {"tried", tried},
            {"first", Describe(first)},
            {"best", Describe(chosen)}};
  }

 private:
  static cublasLtMatrixLayout_t Layout(int64_t rows, int64_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    Check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, rows, columns, rows), "layout");
    return layout;
  }
  void Set(cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    Check(cublasLtMatmulDescSetAttribute(description_, attribute, &operation, sizeof(operation)),
          "transposition");
  }
  template <typename T>
  static std::vector<T> Capabilities(const cublasLtMatmulAlgo_t& a, cublasLtMatmulAlgoCapAttributes_t which) {
    size_t bytes = 0;
    if (cublasLtMatmulAlgoCapGetAttribute(&a, which, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS) return {};
    std::vector<T> values(bytes / sizeof(T));
    if (!values.empty()) {
      cublasLtMatmulAlgoCapGetAttribute(&a, which, values.data(), bytes, &bytes);
    }
    return values;
  }
  template <typename T>
  static bool Configure(cublasLtMatmulAlgo_t& a, cublasLtMatmulAlgoConfigAttributes_t which, T value) {
    return cublasLtMatmulAlgoConfigSetAttribute(&a, which, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }

  std::vector<Candidate> Proposed() {
    cublasLtMatmulPreference_t preference = nullptr;
    Check(cublasLtMatmulPreferenceCreate(&preference), "preference");
    const uint64_t bytes = tandem::ops::kGpuLinearWorkBytes;
    Check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof(bytes)),
          "preference");
    std::vector<cublasLtMatmulHeuristicResult_t> results(256);
    int found = 0;
    Check(cublasLtMatmulAlgoGetHeuristic(handle_, description_, a_, b_, d_, d_, preference,
                                         static_cast<int>(results.size()), results.data(), &found),
          "rules");
    cublasLtMatmulPreferenceDestroy(preference);
    std::vector<Candidate> candidates;
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) candidates.push_back({results[i].algo});
    }
    return candidates;
  }

  std::vector<Candidate> All() {
    std::array<int, 256> ids{};
    int found = 0;
    Check(
        cublasLtMatmulAlgoGetIds(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF,
                                 CUDA_R_16BF, CUDA_R_16BF, static_cast<int>(ids.size()), ids.data(), &found),
        "algorithms");
    std::vector<Candidate> candidates;
    for (int i = 0; i < found; ++i) {
      cublasLtMatmulAlgo_t base{};
      if (cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF,
                                 CUDA_R_16BF, CUDA_R_16BF, ids[i], &base) != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      std::vector<uint32_t> tiles = Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_TILE_IDS);
      std::vector<uint32_t> stages = Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_STAGES_IDS);
      if (tiles.empty()) tiles = {CUBLASLT_MATMUL_TILE_UNDEFINED};
      if (stages.empty()) stages = {CUBLASLT_MATMUL_STAGES_UNDEFINED};
      const std::vector<int32_t> custom = Capabilities<int32_t>(base, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
      const std::vector<uint32_t> swizzles =
          Capabilities<uint32_t>(base, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
      const int most_custom = custom.empty() ? 0 : std::min(custom[0], 31);
      const uint32_t most_swizzle = swizzles.empty() ? 0 : swizzles[0];
      for (const uint32_t tile : tiles) {
        for (const uint32_t stage : stages) {
          for (uint16_t cluster = 0; cluster < CUBLASLT_CLUSTER_SHAPE_END; ++cluster) {
            for (int option = 0; option <= most_custom; ++option) {
              for (uint32_t swizzle = 0; swizzle <= most_swizzle; ++swizzle) {
                Candidate candidate{base};
                cublasLtMatmulAlgo_t& a = candidate.algorithm;
                if (!Configure(a, CUBLASLT_ALGO_CONFIG_TILE_ID, tile) ||
                    !Configure(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, stage) ||
                    !Configure(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) ||
                    !Configure(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, static_cast<uint32_t>(option)) ||
                    !Configure(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle)) {
                  continue;
                }
                cublasLtMatmulHeuristicResult_t result{};
                if (cublasLtMatmulAlgoCheck(handle_, description_, a_, b_, d_, d_, &a, &result) ==
                        CUBLAS_STATUS_SUCCESS &&
                    result.workspaceSize <= static_cast<size_t>(tandem::ops::kGpuLinearWorkBytes)) {
                  candidates.push_back(candidate);
                }
              }
            }
          }
        }
      }
    }
    std::shuffle(candidates.begin(), candidates.end(), std::mt19937(2026));
    return candidates;
  }

  // Milliseconds of one call after another; 0 where it cannot run.
  double Time(const Candidate& candidate) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const float one = 1;
    const float zero = 0;
    for (int call = 0; call < 2; ++call) {
      CheckCuda(cudaEventRecord(events_[static_cast<size_t>(call)], stream), "event");
      if (cublasLtMatmul(handle_, description_, &one, left_.const_data_ptr(), a_, right_.const_data_ptr(), b_,
                         &zero, output_.mutable_data_ptr(), d_, output_.mutable_data_ptr(), d_,
                         &candidate.algorithm, work_.mutable_data_ptr(), static_cast<size_t>(work_.numel()),
                         stream) != CUBLAS_STATUS_SUCCESS) {
        return 0;
      }
    }
    CheckCuda(cudaEventRecord(events_[2], stream), "event");
    if (cudaEventSynchronize(events_[2]) != cudaSuccess) return 0;
    float ms = 0;
    CheckCuda(cudaEventElapsedTime(&ms, events_[1], events_[2]), "time");
    return ms;
  }

  static nlohmann::ordered_json Describe(const Candidate& candidate) {
    nlohmann::ordered_json text;
    const auto read = [&](const char* name, cublasLtMatmulAlgoConfigAttributes_t which, auto value) {
      size_t written = 0;
      if (cublasLtMatmulAlgoConfigGetAttribute(&candidate.algorithm, which, &value, sizeof(value),
                                               &written) == CUBLAS_STATUS_SUCCESS) {
        text[name] = value;
      }
    };
    read("id", CUBLASLT_ALGO_CONFIG_ID, int32_t{0});
    read("tile", CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{0});
    read("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{0});
    read("cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{0});
    read("custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{0});
    read("swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{0});
    read("split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{0});
    return text;
  }

  cublasLtHandle_t handle_;
  const Product p_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  at::Tensor left_;
  at::Tensor right_;
  at::Tensor output_;
  at::Tensor work_;
  std::array<cudaEvent_t, 3> events_{};
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 2 ? std::atof(argv[1]) : 0;
  if (seconds <= 0) {
    std::fprintf(stderr, "usage: tandem-bench-products SECONDS TOKENS,OUTPUTS,INPUTS ...\n");
    return 2;
  }
  const c10::InferenceMode inference;
  cublasLtHandle_t handle = nullptr;
  Check(cublasLtCreate(&handle), "handle");
  for (int i = 2; i < argc; ++i) {
    long long tokens = 0;
    long long outputs = 0;
    long long inputs = 0;
    if (std::sscanf(argv[i], "%lld,%lld,%lld", &tokens, &outputs, &inputs) != 3) {
      std::fprintf(stderr, "%s: allowed: TOKENS,OUTPUTS,INPUTS\n", argv[i]);
      return 2;
    }
    // Rows of ours are columns of cuBLASLt's: it computes the transposed output.
    for (const Product& product : {Product{"y", true, false, outputs, tokens, inputs},
                                   Product{"grad x", false, false, inputs, tokens, outputs},
                                   Product{"grad weight", false, true, inputs, outputs, tokens}}) {
      std::printf("%s\n", Search(handle, product).Run(seconds).dump().c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}
