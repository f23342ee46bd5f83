#pragma once

#include <string>

namespace tandem::device {

// Throws DeviceError for a CUDA runtime error (cudaError_t as int, cudaSuccess is 0): "CUDA, <what>:
// <the runtime's text>". An error of a kernel shows at a later call, and stays: the process is done with
// this GPU.
void CheckCuda(int error, const char* what);

// The runtime's name and text of an error.
std::string CudaErrorText(int error);

}  // namespace tandem::device
