// SPDX-License-Identifier: Apache-2.0
#include "plan/mfu.h"

#include <gtest/gtest.h>

#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

TEST(MfuTest, KnowsThePeaksOfNamedDevices) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 2}", "{compute: bf16}"));
  const double flops = model::FlopsPerToken(plan.model, 64) * 64 * 12 / 2;
  EXPECT_DOUBLE_EQ(SecondsAtPeakOf(plan, "NVIDIA H200"), flops / 989.4e12);
  EXPECT_DOUBLE_EQ(SecondsAtPeakOf(plan, "NVIDIA H100 80GB HBM3"), flops / 989.4e12);
  EXPECT_DOUBLE_EQ(SecondsAtPeakOf(MakeJobPlan(TestJob()), "NVIDIA H200"), flops / 66.9e12) << "fp32";
  for (const char* device : {"cpu", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", ""}) {
    EXPECT_EQ(SecondsAtPeakOf(plan, device), 0) << device;
  }
}

}  // namespace
}  // namespace tandem::plan
