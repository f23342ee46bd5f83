// SPDX-License-Identifier: Apache-2.0
#include "ops/device_kernels.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/product.h"
#include "ops/cpu/run.h"
#include "ops/expert_products.h"
#include "ops/operations.h"

namespace tandem::ops {
namespace cpu {
namespace {

// The rows that are there, of all.
template <typename Args>
Args OfRowsThere(Args args) {
  if (args.rows_there != nullptr) {
    TORCH_CHECK(*args.rows_there >= 0 && *args.rows_there <= args.rows, "there are ", args.rows,
                " rows, not ", *args.rows_there);
    args.rows = *args.rows_there;
  }
  return args;
}

}  // namespace

// Those that are loops of an instruction set.
template <typename E>
void Run(const AttentionArgs<E>& args) {
  BestKernels<E>().attention(args);
}
template <typename E>
void Run(const AttentionBackwardArgs<E>& args) {
  BestKernels<E>().attention_backward(args);
}
template <typename E>
void Run(const RmsNormArgs<E>& args) {
  BestKernels<E>().rms_norm(args);
}
template <typename E>
void Run(const RmsNormBackwardArgs<E>& args) {
  BestKernels<E>().rms_norm_backward(args);
}
template <typename E>
void Run(const RopeArgs<E>& args) {
  BestKernels<E>().rope(args);
}
template <typename E>
void Run(const SwiGluArgs<E>& args) {
  BestKernels<E>().swiglu(OfRowsThere(args));
}
template <typename E>
void Run(const SwiGluBackwardArgs<E>& args) {
  BestKernels<E>().swiglu_backward(OfRowsThere(args));
}

}  // namespace cpu

namespace {

class CpuKernels final : public DeviceKernels {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  std::string digest() const override { return ""; }

  void Run(const KernelCall& call) const override {
    std::visit([this](const auto& args) { Start(args); }, call);
  }
  void Run(const SparseKernelCall& call) const override {
    std::visit([](const auto& args) { cpu::Run(args); }, call);
  }

  void Multiply(const ProductArgs& product) const override { cpu::Multiply(product); }

  void PrepareAttention(const AttentionShape&, int64_t) const override {}

 private:
  template <typename Args>
  void Start(const Args& args) const {
    if constexpr (requires { MultiplyEach(*this, args); }) {
      MultiplyEach(*this, args);
    } else {
      cpu::Run(args);
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
