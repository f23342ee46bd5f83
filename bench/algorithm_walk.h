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
// that it names: tiles, stages, clusters, custom options, swizzles; sums are not split. In a random order,
// each time the same. Throws c10::Error where cuBLASLt does not answer.
std::vector<Algorithm> AllAlgorithms(cublasLtHandle_t handle, cudaDataType_t output);

// Asks cuBLASLt, on every processor but the caller's, which settings it takes for a product, ahead of the
// caller, who times them.
class AlgorithmWalk {
 public:
  // settings and plan are there for as long as this is. Nothing is asked behind the deadline.
  AlgorithmWalk(const std::vector<Algorithm>& settings, const ops::cuda::ProductPlan& plan,
                Clock::time_point deadline);
  ~AlgorithmWalk();  // asks no more
  AlgorithmWalk(const AlgorithmWalk&) = delete;
  AlgorithmWalk& operator=(const AlgorithmWalk&) = delete;

  // Another one that is taken, in any order; waits for it. None behind the last.
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
