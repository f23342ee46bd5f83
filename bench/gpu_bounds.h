// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

namespace tandem::bench {

// Median milliseconds of a call on the current GPU and stream: eleven timed calls after three warm-up calls,
// on a GPU that has rested for a tenth of a second.
double Time(const std::function<void()>& call);

// The GPU, and what it can do.
struct Bounds {
  std::string machine;
  double bytes_per_second = 0;
  double flops_per_second = 0;
};

// A copy within the GPU, in bytes read and written, and an 8192^3 product of bfloat16. Prints both as a line
// of results (result_line.h).
Bounds MeasureBounds();

double Bytes(std::initializer_list<at::Tensor> tensors);

// Prints the lines of one shape: of each operation a line of results with its time, what it must move or
// compute, its rate, the share of the bound, and LibTorch's time, if `aten` is not null. Then releases
// LibTorch's cached memory, which the next operation may need.
class ShapeRows {
 public:
  ShapeRows(std::string shape, const Bounds& bounds) : shape_(std::move(shape)), bounds_(bounds) {}

  // Times an operation that is bound by `bytes` moved, or by `flops` computed.
  void Moves(const std::string& operation, double bytes, const std::function<void()>& ours,
             const std::function<void()>& aten = {}) const;
  void Computes(const std::string& operation, double flops, const std::function<void()>& ours,
                const std::function<void()>& aten = {}) const;

 private:
  const std::string shape_;
  const Bounds bounds_;
};

}  // namespace tandem::bench
