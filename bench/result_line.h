// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tandem::bench {

// The machine that a result is measured on. GpuName returns the name of the first GPU that nvidia-smi lists,
// for benches that use no CUDA themselves but measure trainers on GPUs (the others use device::Device::name).
// If nvidia-smi fails or names none, it returns a text that says so. ProcessorName returns the processor and
// the instruction set that our kernels use there: "AMD EPYC 7B13, AVX2".
std::string GpuName();
std::string ProcessorName();

// Returns `result` as a line of JSON, with its origin: `machine`, the build's "commit", and the current
// "date" in UTC.
std::string ResultLine(nlohmann::ordered_json result, const std::string& machine);

// Returns the median; of an even number of values the upper middle one; 0 without values.
inline double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tandem::bench
