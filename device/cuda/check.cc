#include "device/cuda/check.h"

#include <cuda_runtime_api.h>

#include "device/device.h"

namespace tandem::device {

std::string CudaErrorText(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return std::string(cudaGetErrorName(code)) + ", " + cudaGetErrorString(code);
}

void CheckCuda(int error, const char* what) {
  if (error != cudaSuccess) {
    throw DeviceError("CUDA, " + std::string(what) + ": " + CudaErrorText(error));
  }
}

}  // namespace tandem::device
