#include "device/cuda/check.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace tandem::device {

std::string CudaErrorText(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return std::string(cudaGetErrorName(code)) + ", " + cudaGetErrorString(code);
}

void CheckCuda(int error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error("CUDA, " + std::string(what) + ": " + CudaErrorText(error));
  }
}

}  // namespace tandem::device
