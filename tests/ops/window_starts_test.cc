// SPDX-License-Identifier: Apache-2.0
#include "ops/window_starts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ops/operations.h"

namespace tandem::ops {
namespace {

std::vector<int64_t> StartsOf(int64_t window, const std::vector<int64_t>& documents) {
  std::vector<int64_t> starts(10, -1);
  const Array of_documents(documents.data(), ElementKind::kInt64, DeviceKind::kCpu, 2, 5);
  CpuOperations().WindowStarts(window, documents.empty() ? Array() : of_documents,
                               Array(starts.data(), ElementKind::kInt64, DeviceKind::kCpu, 2, 5))();
  return starts;
}

TEST(WindowStartsTest, ARowSeesTheWindowEndingAtIt) {
  EXPECT_EQ(StartsOf(3, {}), (std::vector<int64_t>{0, 0, 0, 1, 2, 0, 0, 0, 1, 2}));
  EXPECT_EQ(StartsOf(1, {}), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(StartsOf(9, {}), (std::vector<int64_t>(10, 0)));
}

TEST(WindowStartsTest, AWindowEndsAtTheDocumentsStart) {
  EXPECT_EQ(StartsOf(3, {0, 0, 2, 2, 2, 0, 1, 1, 1, 1}),
            (std::vector<int64_t>{0, 0, 2, 2, 2, 0, 1, 1, 1, 2}));
}

TEST(WindowStartsTest, StartsOfAnotherShapeAreRefused) {
  std::vector<int64_t> starts(10);
  const Array all(starts.data(), ElementKind::kInt64, DeviceKind::kCpu, 2, 5);
  EXPECT_THROW(CpuOperations().WindowStarts(0, {}, all), std::invalid_argument);
  EXPECT_THROW(CpuOperations().WindowStarts(2, all.Rows(0, 1), all), std::invalid_argument);
}

}  // namespace
}  // namespace tandem::ops
