// SPDX-License-Identifier: Apache-2.0
#include "fsdp/initialize.h"

#include <xxhash.h>

#include <algorithm>

#include "fsdp/philox.h"

namespace tandem::fsdp {

template <typename T>
void InitializeParameter(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part,
                         T* values) {
  if (init.ones) {
    std::fill_n(values, part.size(), T{1});
    return;
  }
  const uint64_t stream = XXH3_64bits(parameter.name.data(), parameter.name.size());
  for (int64_t i = part.begin; i < part.end; ++i) {
    const double normal = PhiloxNormal(seed, stream, static_cast<uint64_t>(i - parameter.range.begin));
    values[i - part.begin] = static_cast<T>(init.deviation * normal);
  }
}

template void InitializeParameter(uint64_t, const Parameter&, const ParameterInit&, Range, float*);
template void InitializeParameter(uint64_t, const Parameter&, const ParameterInit&, Range, double*);

}  // namespace tandem::fsdp
