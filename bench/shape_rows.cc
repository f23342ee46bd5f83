// SPDX-License-Identifier: Apache-2.0
#include "bench/shape_rows.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <utility>

namespace tandem::bench {

ShapeRows::ShapeRows(std::string shape, const Bounds& bounds) : shape_(std::move(shape)), bounds_(bounds) {}

void ShapeRows::Moves(const std::string& operation, double bytes, const std::function<void()>& ours,
                      const std::function<void()>& aten) const {
  Add(operation, {Unit::kBytes, bytes}, ours, aten);
}

void ShapeRows::Computes(const std::string& operation, double flops, const std::function<void()>& ours,
                         const std::function<void()>& aten) const {
  Add(operation, {Unit::kFlops, flops}, ours, aten);
}

void ShapeRows::Add(const std::string& operation, const Amount& amount, const std::function<void()>& ours,
                    const std::function<void()>& aten) const {
  Report({{"shape", shape_}, {"operation", operation}}, amount, bounds_, ours, aten);
  c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace tandem::bench
