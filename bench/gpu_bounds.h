// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "nlohmann/json.hpp"

namespace tandem::bench {

// Median milliseconds of one call on the current GPU and stream, of eleven after three.
double Time(const std::function<void()>& call);

// A line of JSON.
void Print(const nlohmann::ordered_json& line);

// What the GPU can do.
struct Bounds {
  double bytes_per_second = 0;
  double flops_per_second = 0;
};

// A copy within the GPU, in bytes read and written, and an 8192^3 product of bfloat16. Prints both, with the
// GPU's name.
Bounds MeasureBounds();

}  // namespace tandem::bench
