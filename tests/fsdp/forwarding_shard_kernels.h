// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "fsdp/shard_kernels.h"

namespace tandem::fsdp {

// Forwards every call to other kernels, which must outlive it. The base of kernels that watch or change some
// calls.
class ForwardingShardKernels : public ShardKernels {
 public:
  explicit ForwardingShardKernels(const ShardKernels& inner) : inner_(inner) {}

  void Initialize(uint64_t seed, const Parameter& parameter, const ParameterInit& init, Range part, bool fp64,
                  void* values) const override {
    inner_.Initialize(seed, parameter, init, part, fp64, values);
  }
  void Round(const float* from, int64_t elements, Bf16* to) const override {
    inner_.Round(from, elements, to);
  }
  std::unique_ptr<UnitKernels> MakeUnit(ShardGeometry geometry) const override {
    return inner_.MakeUnit(std::move(geometry));
  }
  std::unique_ptr<NormKernels> MakeNorm(std::vector<const UnitNormTerms*> units) const override {
    return inner_.MakeNorm(std::move(units));
  }

 protected:
  const ShardKernels& inner_;
};

}  // namespace tandem::fsdp
