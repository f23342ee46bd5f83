// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "ops/attention.h"
#include "ops/call.h"
#include "ops/capacity.h"
#include "ops/causal_conv.h"
#include "ops/cross_entropy.h"
#include "ops/device_kind.h"
#include "ops/embedding.h"
#include "ops/gated_delta.h"
#include "ops/gated_norm.h"
#include "ops/grouped_linear.h"
#include "ops/head_norm.h"
#include "ops/latent_heads.h"
#include "ops/moves.h"
#include "ops/norm_gate.h"
#include "ops/output_gate.h"
#include "ops/permute.h"
#include "ops/product.h"
#include "ops/qkv_bias.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/router_losses.h"
#include "ops/sends.h"
#include "ops/squared_relu.h"
#include "ops/state_scan.h"
#include "ops/swiglu.h"
#include "ops/token_gate.h"
#include "ops/window_starts.h"

namespace tandem::ops {

// The arguments of one call of any kernel, for any element type.
template <template <typename> typename... Args>
using CallOf = std::variant<Args<float>..., Args<double>..., Args<device::Bf16>...>;
using KernelCall =
    CallOf<AddArgs, AttentionArgs, AttentionBackwardArgs, CausalConvArgs, CausalConvBackwardArgs,
           CrossEntropyArgs, EmbeddingArgs, EmbeddingBackwardArgs, GatedDeltaArgs, GatedDeltaBackwardArgs,
           GatedNormArgs, GatedNormBackwardArgs, GroupedLinearArgs, GroupedLinearBackwardInputArgs,
           GroupedLinearBackwardWeightArgs, HeadNormArgs, HeadNormBackwardArgs, NormGateArgs,
           NormGateBackwardArgs, OutputGateArgs, OutputGateBackwardArgs, PackLatentHeadsArgs, QkvBiasArgs,
           QkvBiasBackwardArgs, RmsNormArgs, RmsNormBackwardArgs, RopeArgs, SquaredReluArgs,
           SquaredReluBackwardArgs, StateScanArgs, StateScanBackwardArgs, SwiGluArgs, SwiGluBackwardArgs,
           TokenGateArgs, TokenGateBackwardArgs, UnpackLatentHeadsArgs, UnpermuteArgs>;

// The arguments of one call of a kernel of sparse layers. Routers compute in float or double.
using SparseKernelCall =
    std::variant<CopyArgs, CountTokensArgs, FillArgs, MeanCountsArgs, PermuteArgs, PlanRowsArgs,
                 PlanSendsArgs, PlanWindowArgs, CollectSlotsArgs<float>, CollectSlotsArgs<double>,
                 CountLargestArgs<float>, CountLargestArgs<double>, DropOverflowArgs<float>,
                 DropOverflowArgs<double>, RouteArgs<float>, RouteArgs<double>, RouteBackwardArgs<float>,
                 RouteBackwardArgs<double>, RouterLossesArgs<float>, RouterLossesArgs<double>,
                 RouterLossesBackwardArgs<float>, RouterLossesBackwardArgs<double>, SendSlotsArgs<float>,
                 SendSlotsArgs<double>, UpdateRouterBiasArgs<float>, UpdateRouterBiasArgs<double>,
                 WindowStartsArgs>;

// The kernels of one kind of device. Operations checks the arguments before it calls them. Pointers are to
// memory of the current device of that kind. Matrices are row-major and contiguous, unless there is a stride
// (in elements). Sizes may be 0. Thread-safe.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string digest() const = 0;  // Operations::kernels_digest

  // Binds a kernel to its arguments (call.h). The order of every addition depends only on sizes and on the
  // alignment of matrices. For products, that is their alignment up to 16 bytes; for other kernels, whether
  // they are aligned to 32 bytes.
  virtual Call Bind(const KernelCall& call) const = 0;
  virtual Call Bind(const SparseKernelCall& call) const = 0;
  virtual Call Bind(const ProductArgs& product) const = 0;

  // Copies `bytes` bytes of the host to new memory of the current device, aligned to 64 bytes. Blocks until
  // done.
  virtual std::shared_ptr<const void> CopyOf(const void* host, int64_t bytes) const = 0;

  // Implements Operations::PrepareAttention.
  virtual void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const = 0;
};

}  // namespace tandem::ops
