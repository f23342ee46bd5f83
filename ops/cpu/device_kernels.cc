// SPDX-License-Identifier: Apache-2.0
#include "ops/device_kernels.h"

#include <cstring>
#include <new>

#include "ops/array_checks.h"
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
    Check(*args.rows_there >= 0 && *args.rows_there <= args.rows, "there are ", args.rows, " rows, not ",
          *args.rows_there);
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
void Run(const CausalConvArgs<E>& args) {
  BestKernels<E>().causal_conv(args);
}
template <typename E>
void Run(const CausalConvBackwardArgs<E>& args) {
  BestKernels<E>().causal_conv_backward(args);
}
template <typename E>
void Run(const GatedDeltaArgs<E>& args) {
  BestKernels<E>().gated_delta(args);
}
template <typename E>
void Run(const GatedDeltaBackwardArgs<E>& args) {
  BestKernels<E>().gated_delta_backward(args);
}
template <typename E>
void Run(const NormGateArgs<E>& args) {
  BestKernels<E>().norm_gate(args);
}
template <typename E>
void Run(const NormGateBackwardArgs<E>& args) {
  BestKernels<E>().norm_gate_backward(args);
}
template <typename E>
void Run(const OutputGateArgs<E>& args) {
  BestKernels<E>().output_gate(args);
}
template <typename E>
void Run(const OutputGateBackwardArgs<E>& args) {
  BestKernels<E>().output_gate_backward(args);
}
template <typename E>
void Run(const TokenGateArgs<E>& args) {
  BestKernels<E>().token_gate(args);
}
template <typename E>
void Run(const TokenGateBackwardArgs<E>& args) {
  BestKernels<E>().token_gate_backward(args);
}
template <typename E>
void Run(const GatedNormArgs<E>& args) {
  BestKernels<E>().gated_norm(args);
}
template <typename E>
void Run(const GatedNormBackwardArgs<E>& args) {
  BestKernels<E>().gated_norm_backward(args);
}
template <typename E>
void Run(const SquaredReluArgs<E>& args) {
  BestKernels<E>().squared_relu(args);
}
template <typename E>
void Run(const SquaredReluBackwardArgs<E>& args) {
  BestKernels<E>().squared_relu_backward(args);
}
template <typename E>
void Run(const StateScanArgs<E>& args) {
  BestKernels<E>().state_scan(args);
}
template <typename E>
void Run(const StateScanBackwardArgs<E>& args) {
  BestKernels<E>().state_scan_backward(args);
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
  // Experts have other rows each time.
  template <typename Args>
  Call CallOn(const Args& args) const {
    if constexpr (requires { BindEach(*this, args); }) {
      return [this, args] { BindEach(*this, args)(); };
    } else {
      return [args] { cpu::Run(args); };
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
