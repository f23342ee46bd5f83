// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "nlohmann/json.hpp"

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

// What an operation has to move or to compute.
enum class Unit { kBytes, kFlops };
struct Amount {
  Unit unit = Unit::kBytes;
  double number = 0;
};
double Bytes(std::initializer_list<at::Tensor> tensors);

// Times `ours` and, if it is not null, `aten`. Prints `line` (which names the operation) as a line of results
// with both times, the amount, its rate, and the share of the bound.
void Report(nlohmann::ordered_json line, const Amount& amount, const Bounds& bounds,
            const std::function<void()>& ours, const std::function<void()>& aten);

}  // namespace tandem::bench
