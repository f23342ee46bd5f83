// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct CUstream_st;

namespace tandem::cuda {

// A kernel on `stream` that does nothing for about that long.
void Spin(int64_t nanoseconds, CUstream_st* stream);

}  // namespace tandem::cuda
