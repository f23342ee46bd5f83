// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "bench/gpu_bounds.h"

namespace tandem::bench {

// The lines of one shape: Report (gpu_bounds.h) of an operation, after which LibTorch gives memory that it
// only keeps back to the GPU, as the next operation may need it.
class ShapeRows {
 public:
  ShapeRows(std::string shape, const Bounds& bounds);

  // An operation that is bound by so many bytes, or floating point operations. aten: LibTorch's, or null.
  void Moves(const std::string& operation, double bytes, const std::function<void()>& ours,
             const std::function<void()>& aten) const;
  void Computes(const std::string& operation, double flops, const std::function<void()>& ours,
                const std::function<void()>& aten) const;

 private:
  void Add(const std::string& operation, const Amount& amount, const std::function<void()>& ours,
           const std::function<void()>& aten) const;

  const std::string shape_;
  const Bounds bounds_;
};

}  // namespace tandem::bench
