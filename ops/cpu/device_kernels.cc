// SPDX-License-Identifier: Apache-2.0
#include "ops/device_kernels.h"

#include <cstring>
#include <new>

#include "ops/cpu/kernels.h"
#include "ops/cpu/product.h"
#include "ops/expert_products.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace {

class CpuKernels final : public DeviceKernels {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string digest() const override { return ""; }

  Call Bind(const KernelCall& call) const override {
    return std::visit([this](const auto& args) { return CallOn(args); }, call);
  }
  Call Bind(const SparseKernelCall& call) const override {
    return std::visit([this](const auto& args) { return CallOn(args); }, call);
  }
  Call Bind(const ProductArgs& product) const override { return cpu::BindProduct(product); }

  std::shared_ptr<const void> CopyOf(const void* host, int64_t bytes) const override {
    constexpr std::align_val_t kAlignment{64};
    const auto size = static_cast<size_t>(bytes);
    const std::shared_ptr<void> memory(::operator new(size, kAlignment),
                                       [](void* begin) { ::operator delete(begin, kAlignment); });
    if (size > 0) {
      std::memcpy(memory.get(), host, size);
    }
    return memory;
  }

  void PrepareAttention(const AttentionShape&, int64_t) const override {}

 private:
  // Experts have different numbers of rows each time.
  template <typename Args>
  Call CallOn(const Args& args) const {
    if constexpr (requires { BindEach(*this, args); }) {
      return [this, args] { BindEach(*this, args)(); };
    } else {
      return [args] { cpu::RunKernel(args); };
    }
  }
};

}  // namespace

const Operations& CpuOperations() {
  static const CpuKernels kernels;
  static const Operations operations(kernels);
  return operations;
}

}  // namespace tandem::ops
