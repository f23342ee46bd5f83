// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::device {

// Throws DeviceError for a CUDA runtime error (cudaError_t as int, cudaSuccess is 0): "CUDA, <what>: <the
// runtime's text>". A kernel's error is reported by a later call and is permanent: the process can no longer
// use this GPU.
void CheckCuda(int error, const char* what);

// The runtime's name and text of an error.
std::string CudaErrorText(int error);

}  // namespace tandem::device
