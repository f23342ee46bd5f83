// SPDX-License-Identifier: Apache-2.0
#include "ops/device_kernels.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <stdexcept>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "ops/cuda/blocked_attention.h"
#include "ops/cuda/flash_attention.h"
#include "ops/cuda/hopper_products.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_product.h"
#include "ops/cuda/operations.h"
#include "ops/cuda/tensor_delta.h"
#include "ops/cuda/tensor_scan.h"
#include "ops/delta_work.h"
#include "ops/expert_products.h"
#include "ops/mixer_work.h"
#include "ops/tensors.h"
#include "platform/sha256.h"

namespace tandem::ops {
namespace {

cuda::Stream Current() { return c10::cuda::getCurrentCUDAStream().stream(); }

class CudaKernels final : public DeviceKernels {
 public:
  DeviceKind kind() const override { return DeviceKind::kGpu; }
  std::string digest() const override {
    return platform::Sha256Of(cuda::MatrixProduct::Digest() + cuda::HopperVersion() +
                              cuda::FlashAttention::Version());
  }

  Call Bind(const KernelCall& call) const override {
    return std::visit([this](const auto& args) { return CallOn(args); }, call);
  }
  Call Bind(const SparseKernelCall& call) const override {
    return std::visit([this](const auto& args) { return CallOn(args); }, call);
  }
  Call Bind(const ProductArgs& product) const override {
    return [bound = product_.Bind(product)] { bound(Current()); };
  }

  std::shared_ptr<const void> CopyOf(const void* host, int64_t bytes) const override {
    const Array from(host, ElementKind::kByte, DeviceKind::kCpu, bytes, 1);
    const auto copy = std::make_shared<at::Tensor>(TensorOf(from).to(at::kCUDA));
    return {copy, copy->const_data_ptr()};
  }

  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const override {
    if (element_bytes == sizeof(device::Bf16) && cuda::FlashAttention::Computes(shape)) {
      flash_.Prepare(shape);
    }
  }

 private:
  template <typename Args>
  Call CallOn(const Args& args) const {
    if constexpr (requires { BindEach(*this, args); }) {
      if (args.on_host && !cuda::IsHopperProduct(args)) {
        return BindEach(*this, args);
      }
      if (args.on_host) {
        CheckBegins(args.begins, args.experts, args.rows);
      }
    }
    if constexpr (requires { cuda::FitsTensorScan(args); }) {
      if (ScansOnTensorCores(args.shape, sizeof(device::Bf16)) && !cuda::FitsTensorScan(args)) {
        throw std::invalid_argument(absl::StrCat(
            Args::kName, ": heads of ", args.shape.head_dim, " channels with ", args.shape.state,
            " numbers of state need a GPU whose blocks may have 114 KiB of shared memory (compute "
            "capability 8.0, 9.0 or 10.0), and arrays at multiples of 16 bytes; compute in fp32"));
      }
    }
    if constexpr (requires { cuda::FitsTensorDelta(args); }) {
      if (DeltasOnTensorCores(args.shape, sizeof(device::Bf16)) && !cuda::FitsTensorDelta(args)) {
        throw std::invalid_argument(absl::StrCat(
            Args::kName, ": keys of ", args.shape.key_dim, " and values of ", args.shape.value_dim,
            " numbers need a GPU whose blocks may have 157 KiB of shared "
            "memory (compute capability 8.0, 9.0 or 10.0), and arrays at multiples of 16 bytes; "
            "compute in fp32"));
      }
    }
    return [args] {
      const int error = cuda::LaunchKernel(args, Current());
      if (error != 0) {
        throw std::runtime_error(absl::StrCat(Args::kName, ": the kernel did not start, CUDA error ", error));
      }
    };
  }

  template <typename Args>
    requires requires(const Args& args) { cuda::BlockedAttention(args); }
  Call CallOn(const Args& args) const {
    if constexpr (requires { flash_.Bind(args); }) {
      if (cuda::FlashAttention::Computes(args.shape)) {
        return [bound = flash_.Bind(args)] { bound(Current()); };
      }
    }
    return [args] { cuda::BlockedAttention(args); };
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
