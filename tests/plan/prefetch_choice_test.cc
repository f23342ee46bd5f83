// SPDX-License-Identifier: Apache-2.0
#include "plan/prefetch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/prediction.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using schedules::DeviceProfile;
using testing::ContainsRegex;

DeviceProfile Profile(double link_bytes_per_second) {
  return {.name = "test",
          .compute = {{"fp32", {.flops_per_second = 1e9}}},
          .memory_bytes_per_second = 1e15,
          .link = {.bytes_per_second = link_bytes_per_second}};
}

v1::JobSpec WithPrefetch(v1::JobSpec job, int distance) {
  job.mutable_parallelism()->mutable_fsdp()->set_prefetch(distance);
  return job;
}

v1::JobSpec Sequential() { return TestJob("{ranks: 2, fsdp: {prefetch: auto}}"); }

v1::JobSpec Overlapped() {
  v1::JobSpec job =
      TestJob("{ranks: 2, expert: 2, schedule: overlap, fsdp: {prefetch: auto}}", "{compute: fp32}",
              ", moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 64}", "qwen3_moe");
  return job;
}

Prediction PredictionOf(const v1::JobSpec& job, const DeviceProfile& profile) {
  return *Predict(MakeJobPlan(job), profile);
}

// What is chosen is another distance than the default, and faster than it.
void ExpectBetterThanTheDefault(const v1::JobSpec& job, const DeviceProfile& profile) {
  const PrefetchChoice choice = *ChoosePrefetch(job, profile);
  ASSERT_EQ(choice.trials.size(), 3u);
  EXPECT_NE(choice.distance, 1) << PrefetchChoiceToText(choice);
  const Prediction chosen = PredictionOf(WithPrefetch(job, choice.distance), profile);
  EXPECT_LT(chosen.step_ns, PredictionOf(WithPrefetch(job, 1), profile).step_ns);
  for (const PrefetchTrial& trial : choice.trials) {
    const Prediction prediction = PredictionOf(WithPrefetch(job, trial.distance), profile);
    EXPECT_EQ(trial.step_ns, prediction.step_ns);
    EXPECT_EQ(trial.device_bytes, prediction.device_bytes());
    EXPECT_TRUE(trial.fits);
    EXPECT_LE(static_cast<double>(chosen.step_ns), 1.001 * static_cast<double>(trial.step_ns));
  }
}

TEST(PrefetchChoiceTest, SequentialJobPrefetchesWhileTheStepShortens) {
  ExpectBetterThanTheDefault(Sequential(), Profile(1e7));
}

TEST(PrefetchChoiceTest, OverlappedJobPrefetchesWhileTheStepShortens) {
  ExpectBetterThanTheDefault(Overlapped(), Profile(3e6));
}

TEST(PrefetchChoiceTest, DistanceThatDoesNotFitIsNotTaken) {
  for (const v1::JobSpec& job : {Sequential(), Overlapped()}) {
    DeviceProfile profile = Profile(3e6);
    const PrefetchChoice free = *ChoosePrefetch(job, profile);
    const int64_t needed = free.trials.at(free.distance).device_bytes;
    profile.memory_bytes = needed - 1;
    const PrefetchChoice bound = *ChoosePrefetch(job, profile);
    EXPECT_NE(bound.distance, free.distance);
    EXPECT_LT(bound.trials.at(bound.distance).device_bytes, needed);
    EXPECT_TRUE(bound.trials.at(bound.distance).fits);
    EXPECT_FALSE(bound.trials.at(free.distance).fits);
    EXPECT_THAT(PrefetchChoiceToText(bound), ContainsRegex("a step, [0-9.]+ MiB, which does not fit"));
    profile.memory_bytes = 1;  // nothing fits: the least
    EXPECT_EQ(ChoosePrefetch(job, profile)->distance, 0);
  }
}

// On a link so fast that no gather is waited for.
TEST(PrefetchChoiceTest, EqualStepsTakeTheLeastMemory) {
  EXPECT_EQ(ChoosePrefetch(Sequential(), Profile(1e15))->distance, 0);
}

TEST(PrefetchChoiceTest, SubmittedSpecGetsADistanceUnlessGiven) {
  v1::JobSpec job = Sequential();
  ASSERT_TRUE(ResolvePrefetch(job).ok());
  EXPECT_FALSE(ChoosesPrefetch(job));
  EXPECT_EQ(job.parallelism().fsdp().prefetch(),
            ChoosePrefetch(Sequential(), *schedules::PresetProfile("cpu"))->distance);
  v1::JobSpec given = WithPrefetch(Sequential(), 2);
  ASSERT_TRUE(ResolvePrefetch(given).ok());
  EXPECT_EQ(given.parallelism().fsdp().prefetch(), 2);
}

TEST(PrefetchChoiceTest, ProfileWithoutTheJobsRateIsRefused) {
  DeviceProfile profile = Profile(1e9);
  profile.compute.clear();
  EXPECT_THAT(std::string(ChoosePrefetch(Sequential(), profile).status().message()),
              testing::StartsWith("precision.compute: the device profile test has no rate for fp32"));
}

TEST(PrefetchChoiceTest, APlanIsOfANumberAlone) { EXPECT_THROW(MakeJobPlan(Sequential()), std::logic_error); }

}  // namespace
}  // namespace tandem::plan
