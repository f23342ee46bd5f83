// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ops/device_kernels.h"

namespace tandem::ops {

// Forwards all calls to `inner`, which must outlive it. The base of test doubles that record or change some
// calls.
class ForwardingKernels : public DeviceKernels {
 public:
  explicit ForwardingKernels(const DeviceKernels& inner) : inner_(inner) {}

  DeviceKind kind() const override { return inner_.kind(); }
  std::string digest() const override { return inner_.digest(); }
  Call Bind(const KernelCall& call) const override { return inner_.Bind(call); }
  Call Bind(const SparseKernelCall& call) const override { return inner_.Bind(call); }
  Call Bind(const ProductArgs& product) const override { return inner_.Bind(product); }
  std::shared_ptr<const void> CopyOf(const void* host, int64_t bytes) const override {
    return inner_.CopyOf(host, bytes);
  }
  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const override {
    inner_.PrepareAttention(shape, element_bytes);
  }

 protected:
  const DeviceKernels& inner_;
};

}  // namespace tandem::ops
