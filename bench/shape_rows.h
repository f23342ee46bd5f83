// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "bench/gpu_bounds.h"

namespace tandem::bench {

// Prints the lines of one shape: calls Report (gpu_bounds.h) for each operation, and then releases LibTorch's
// cached memory, which the next operation may need.
class ShapeRows {
 public:
  ShapeRows(std::string shape, const Bounds& bounds);

  // Times an operation that is bound by `bytes` moved, or by `flops` computed. aten: LibTorch's version, or
  // null.
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
