// SPDX-License-Identifier: Apache-2.0
#include "bench/algorithm_walk.h"

#include <algorithm>
#include <array>
#include <random>

namespace tandem::bench {
namespace {

using ops::cuda::CheckProduct;

constexpr size_t kAskedAtOnce = 512;

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

}  // namespace

std::vector<Algorithm> AllAlgorithms(cublasLtHandle_t handle, cudaDataType_t output) {
  constexpr cudaDataType_t kType = CUDA_R_16BF;
  std::array<int, 256> ids{};
  int found = 0;
  CheckProduct(cublasLtMatmulAlgoGetIds(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, kType, kType, output, output,
                                        static_cast<int>(ids.size()), ids.data(), &found),
               "algorithms");
  std::vector<Algorithm> all;
  for (int i = 0; i < found; ++i) {
    cublasLtMatmulAlgo_t base{};
    if (cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, kType, kType, output, output, ids[i],
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

AlgorithmWalk::AlgorithmWalk(const std::vector<Algorithm>& settings, const ops::cuda::ProductPlan& plan,
                             Clock::time_point deadline)
    : settings_(settings),
      plan_(plan),
      deadline_(deadline),
      asking_(std::max<size_t>(2, std::thread::hardware_concurrency()) - 1) {
  const size_t threads = asking_;
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Ask(); });
  }
}

AlgorithmWalk::~AlgorithmWalk() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void AlgorithmWalk::Ask() {
  cublasLtHandle_t handle = nullptr;
  const bool ready = cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS;
  std::vector<Algorithm> taken;
  while (ready && !stop_ && Clock::now() < deadline_) {
    const size_t begin = next_.fetch_add(kAskedAtOnce);
    if (begin >= settings_.size()) {
      break;
    }
    const size_t end = std::min(begin + kAskedAtOnce, settings_.size());
    taken.clear();
    for (size_t i = begin; i < end; ++i) {
      if (plan_.Takes(handle, settings_[i])) {
        taken.push_back(settings_[i]);
      }
    }
    asked_ += end - begin;
    if (taken.empty()) {
      continue;
    }
    const absl::MutexLock lock(&mu_);
    taken_.insert(taken_.end(), taken.begin(), taken.end());
  }
  if (ready) {
    cublasLtDestroy(handle);
  }
  const absl::MutexLock lock(&mu_);
  --asking_;
}

std::optional<Algorithm> AlgorithmWalk::Next() {
  const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !taken_.empty() || asking_ == 0; };
  const absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&known));
  if (taken_.empty()) {
    return std::nullopt;
  }
  const Algorithm next = taken_.front();
  taken_.pop_front();
  return next;
}

}  // namespace tandem::bench
