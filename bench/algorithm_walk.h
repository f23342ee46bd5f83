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

// Returns every algorithm of cuBLASLt for products of bfloat16 with an output of type `output`, with every
// combination of the settings that cuBLASLt lists for it: tiles, stages, clusters, custom options and
// swizzles. No setting splits sums. The order is random, but the same in every run. Throws
// std::invalid_argument if cuBLASLt fails.
std::vector<Algorithm> AllAlgorithms(cublasLtHandle_t handle, cudaDataType_t output);

// Finds the settings that cuBLASLt accepts for a product. Its threads, on all other processors, ask cuBLASLt
// ahead of the caller, which times the accepted settings.
class AlgorithmWalk {
 public:
  // `settings` and `plan` must outlive this object. Its threads stop at the deadline.
  AlgorithmWalk(const std::vector<Algorithm>& settings, const ops::cuda::ProductPlan& plan,
                Clock::time_point deadline);
  ~AlgorithmWalk();  // stops its threads and waits for them
  AlgorithmWalk(const AlgorithmWalk&) = delete;
  AlgorithmWalk& operator=(const AlgorithmWalk&) = delete;

  // Waits for an accepted setting that it has not returned yet, in no particular order. nullopt if there are
  // no more.
  std::optional<Algorithm> Next() ABSL_LOCKS_EXCLUDED(mu_);

  // The number of settings that cuBLASLt was asked about; final once Next has returned nullopt.
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
