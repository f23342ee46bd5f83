// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/cuda/device.h"
#include "plan/stages.h"
#include "tests/cuda/spinning_backend.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

constexpr uint64_t kStagesSeed = 61;  // of the random timing

// Tier T0: two stages on two GPUs have the bits of one stage on one, in any order that events allow.
TEST(CudaStagesTest, StagesOnTwoGpusHaveOneGpusBits) {
  if (device::CountCudaDevices() < 2) {
    GTEST_SKIP() << "two GPUs are needed";
  }
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    JobOptions options = {.microbatches_per_rank = 6,
                          .layers = 4,
                          .on_gpus = true,
                          .precision = precision,
                          .validate_every_steps = 2};
    const plan::JobPlan one = MakeJob(options);
    const JobRun run = RunJob(one, cuda::OnGpus());
    // Loads all kernels on both GPUs: plan/stages.h says why.
    options.ranks = 2;
    RunJob(MakeJob(options), cuda::OnSpinningGpus(kStagesSeed));
    for (const std::vector<int64_t>& layers :
         {std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 1, 1, 1}}) {
      SCOPED_TRACE(testing::Message() << precision << ", " << layers.size() << " chunks");
      const std::vector<plan::JobPlan> stages = plan::StagePlans(one, 2, layers);
      EXPECT_EQ(FirstDifference(run, RunStages(stages, cuda::OnGpus())), "");
      EXPECT_EQ(FirstDifference(run, RunStages(stages, cuda::OnSpinningGpus(kStagesSeed))), "");
    }
  }
}

}  // namespace
}  // namespace tandem::parity
