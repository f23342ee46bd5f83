// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct CUstream_st;

namespace tandem::cuda {

// Launches a kernel on `stream` that does nothing for about `nanoseconds`.
void Spin(int64_t nanoseconds, CUstream_st* stream);

}  // namespace tandem::cuda
