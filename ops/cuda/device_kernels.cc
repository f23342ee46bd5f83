// SPDX-License-Identifier: Apache-2.0
#include "ops/device_kernels.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <type_traits>

#include "ops/cuda/blocked_attention.h"
#include "ops/cuda/flash_attention.h"
#include "ops/cuda/hopper_products.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_product.h"
#include "ops/cuda/operations.h"
#include "ops/cuda/sparse_kernels.h"
#include "ops/expert_products.h"
#include "platform/sha256.h"

namespace tandem::ops {
namespace {

cuda::Stream Current() { return c10::cuda::getCurrentCUDAStream().stream(); }

class CudaKernels final : public DeviceKernels {
 public:
  DeviceKind kind() const override { return DeviceKind::kGpu; }
  c10::Device device() const override { return {at::kCUDA, c10::cuda::current_device()}; }
  std::string digest() const override {
    return platform::Sha256Of(cuda::MatrixProduct::Digest() + cuda::HopperVersion() +
                              cuda::FlashAttention::Version());
  }

  void Run(const KernelCall& call) const override {
    std::visit([this](const auto& args) { Start(args); }, call);
  }
  void Run(const SparseKernelCall& call) const override {
    std::visit([this](const auto& args) { Start(args); }, call);
  }

  void Multiply(const ProductArgs& product) const override { product_.Multiply(product, Current()); }

  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const override {
    if (element_bytes == sizeof(device::Bf16) && cuda::FlashAttention::Computes(shape)) {
      flash_.Prepare(shape);
    }
  }

 private:
  template <typename Args>
  void Start(const Args& args) const {
    if constexpr (requires { MultiplyEach(*this, args); }) {
      if (args.on_host && !cuda::IsHopperProduct(args)) {
        return MultiplyEach(*this, args);
      }
      if (args.on_host) {
        CheckBegins(args.begins, args.experts, args.rows);
      }
    }
    const int error = cuda::Launch(args, Current());
    TORCH_CHECK(error == 0, Args::kName, ": the kernel did not start, CUDA error ", error);
  }

  template <typename E>
  void Start(const AttentionArgs<E>& args) const {
    if constexpr (std::is_same_v<E, device::Bf16>) {
      if (cuda::FlashAttention::Computes(args.shape)) {
        return flash_.Forward(args, Current());
      }
    }
    cuda::BlockedAttention(args);
  }

  template <typename E>
  void Start(const AttentionBackwardArgs<E>& args) const {
    if constexpr (std::is_same_v<E, device::Bf16>) {
      if (cuda::FlashAttention::Computes(args.shape)) {
        return flash_.Backward(args, Current());
      }
    }
    cuda::BlockedAttention(args);
  }

  mutable cuda::FlashAttention flash_;  // both are thread-safe
  mutable cuda::MatrixProduct product_;
};

}  // namespace

const Operations& CudaOperations() {
  static const CudaKernels kernels;
  static const Operations operations(kernels);
  return operations;
}

}  // namespace tandem::ops
