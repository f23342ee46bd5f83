// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

namespace tandem::bench {

// Returns the median time of `call` on the current GPU and stream, in milliseconds: of eleven calls after
// three warm-up calls, on a GPU that was idle for a tenth of a second before.
double Time(const std::function<void()>& call);

// The name of a GPU, and its measured speed.
struct Bounds {
  std::string machine;
  double bytes_per_second = 0;
  double flops_per_second = 0;
};

// Measures a copy within the GPU (bytes read plus bytes written) and an 8192^3 product of bfloat16. Prints
// both as a line of results (result_line.h).
Bounds MeasureBounds();

double Bytes(std::initializer_list<at::Tensor> tensors);

// Times the operations of one shape. Prints a line of results for each: its time, the bytes that it must move
// or the FLOPs that it must compute, its rate, its share of the bound, and the time of `aten`, LibTorch's
// operation, if it is not null. Then releases LibTorch's cached memory, which the next operation may need.
class ShapeRows {
 public:
  ShapeRows(std::string shape, const Bounds& bounds) : shape_(std::move(shape)), bounds_(bounds) {}

  // Times an operation that must move `bytes`, or compute `flops`.
  void Moves(const std::string& operation, double bytes, const std::function<void()>& ours,
             const std::function<void()>& aten = {}) const;
  void Computes(const std::string& operation, double flops, const std::function<void()>& ours,
                const std::function<void()>& aten = {}) const;

 private:
  // `amount` of `unit` are moved or computed; the GPU can do `bound` a second.
  void Row(const std::string& operation, const char* unit, double amount, const char* rate, double bound,
           const std::function<void()>& ours, const std::function<void()>& aten) const;

  const std::string shape_;
  const Bounds bounds_;
};

}  // namespace tandem::bench
