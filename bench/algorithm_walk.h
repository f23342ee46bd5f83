// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ops/cuda/product_plan.h"
#include "ops/product_table.h"

namespace tandem::bench {

using Algorithm = ops::ProductTable::Algorithm;
using Clock = std::chrono::steady_clock;

// Every algorithm that cuBLASLt has for products of bfloat16 with an output of that type, with every setting
// that it names: tiles, stages, clusters, custom options, swizzles; sums are not split. The order is random
// but always the same. Throws std::invalid_argument if cuBLASLt fails.
std::vector<Algorithm> AllAlgorithms(cublasLtHandle_t handle, cudaDataType_t output);

// Asks cuBLASLt on all other processors which settings it accepts for a product, ahead of the caller, which
// times them.
class AlgorithmWalk {
 public:
  // settings and plan must outlive this object. Nothing is asked after the deadline.
  AlgorithmWalk(const std::vector<Algorithm>& settings, const ops::cuda::ProductPlan& plan,
                Clock::time_point deadline);
  ~AlgorithmWalk();  // stops asking, and waits for its threads
  AlgorithmWalk(const AlgorithmWalk&) = delete;
  AlgorithmWalk& operator=(const AlgorithmWalk&) = delete;

  // The next accepted setting, in any order; waits for it. nullopt after the last.
  std::optional<Algorithm> Next() ABSL_LOCKS_EXCLUDED(mu_);

  // How many settings were asked for; final once Next has returned none.
  size_t asked() const { return asked_; }

 private:
  void Ask() ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<Algorithm>& settings_;
  const ops::cuda::ProductPlan& plan_;
  const Clock::time_point deadline_;
  std::atomic<size_t> next_{0};  // setting
  std::atomic<size_t> asked_{0};
  std::atomic<bool> stop_{false};
  absl::Mutex mu_;
  std::deque<Algorithm> taken_ ABSL_GUARDED_BY(mu_);
  size_t asking_ ABSL_GUARDED_BY(mu_);  // threads
  std::vector<std::thread> threads_;
};

}  // namespace tandem::bench
