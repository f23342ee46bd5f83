// SPDX-License-Identifier: Apache-2.0
#include "plan/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;

constexpr StepFindings kTooLarge = {.too_large = true};

// "training.micro_batch_size 2 -> 1", and what goes with it: "a 1 -> 2 with b 3".
std::vector<std::string> TextsOf(const std::vector<SpecChange>& changes) {
  std::vector<std::string> texts;
  for (const SpecChange& change : changes) {
    std::string& text =
        texts.emplace_back(absl::StrCat(change.field.path, " ", change.field.from, " -> ", change.field.to));
    for (const FieldChange& field : change.beside) {
      absl::StrAppend(&text, " with ", field.path, " ", field.to);
    }
  }
  return texts;
}

TEST(ChangesToTryTest, LargerPrefetchIsTriedOnlyWhereComputeWaits) {
  const v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 1}}");
  const std::string smaller = "parallelism.fsdp.prefetch 1 -> 0";
  const std::string larger = "parallelism.fsdp.prefetch 1 -> 2";
  EXPECT_THAT(TextsOf(ChangesToTry(job, {})), AllOf(Contains(smaller), Not(Contains(larger))));
  EXPECT_THAT(TextsOf(ChangesToTry(job, {.compute_waits = true})), IsSupersetOf({smaller, larger}));
}

TEST(ChangesToTryTest, MemoryIsSavedOnlyInTooLargeJobs) {
  const v1::JobSpec job = TestJob("{ranks: 2, fsdp: {strategy: zero1}}");
  const std::string recomputed = "training.recompute off -> layer";
  const std::string sharded = "parallelism.fsdp.strategy zero1 -> zero3";
  EXPECT_THAT(TextsOf(ChangesToTry(job, kTooLarge)), IsSupersetOf({recomputed, sharded}));
  EXPECT_THAT(TextsOf(ChangesToTry(job, {})), Not(testing::AnyOf(Contains(recomputed), Contains(sharded))));
}

// The batch of 12 sequences is 2 ranks' microbatches of 1, 2, 3 or 6.
TEST(ChangesToTryTest, ASpecThatIsRefusedIsNotTried) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_micro_batch_size(3);
  for (const std::string& text : TextsOf(ChangesToTry(job, {}))) {
    EXPECT_NE(text, "training.micro_batch_size 3 -> 4");
  }
  EXPECT_THAT(TextsOf(ChangesToTry(job, {})), Contains("training.micro_batch_size 3 -> 6"));
  job.mutable_training()->set_micro_batch_size(6);
  EXPECT_THAT(TextsOf(ChangesToTry(job, {})), Not(Contains("training.micro_batch_size 6 -> 12")));
}

std::vector<std::string> Repeatability(v1::Device device, const std::string& precision,
                                       const StepFindings& findings = kTooLarge,
                                       const std::string& recompute = "off") {
  v1::JobSpec job = TestJob("{ranks: 2}", precision);
  job.mutable_training()->set_recompute(recompute);
  job.mutable_resources()->set_device(device);
  std::vector<SpecChange> changes = ChangesToTry(job, findings);
  std::erase_if(changes,
                [](const SpecChange& change) { return change.field.path != "precision.deterministic"; });
  return TextsOf(changes);
}

TEST(ChangesToTryTest, RepeatabilityIsGivenUpOnlyForMemory) {
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: bf16}"),
              ElementsAre("precision.deterministic true -> false",
                          "precision.deterministic true -> false with training.recompute layer"));
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: bf16, deterministic: false}"), ElementsAre());
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: fp32}"), ElementsAre());
  EXPECT_THAT(Repeatability(v1::DEVICE_CPU, "{compute: bf16}"), ElementsAre());
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: bf16}", {}), ElementsAre());
}

TEST(ChangesToTryTest, WithoutRepeatabilityEveryRecomputationIsTriedOnce) {
  const std::string given_up = "precision.deterministic true -> false";
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: bf16}", kTooLarge, "layer"), ElementsAre(given_up));
  EXPECT_THAT(Repeatability(v1::DEVICE_CUDA, "{compute: bf16}", kTooLarge, "attention"),
              ElementsAre(given_up, given_up + " with training.recompute layer"));
}

TEST(TryChangesTest, TrialsAreIndependentOfTheNumberOfThreads) {
  const v1::JobSpec job = SparseJob("sequential", "fixed");
  const std::vector<SpecChange> changes = ChangesToTry(job, {.compute_waits = true});
  const auto texts = [&](int threads) {
    std::vector<std::string> lines;
    for (const Trial& trial : TryChanges(changes, SlowLink(), threads)) {
      lines.push_back(absl::StrCat(trial.change.field.path, " ", trial.change.field.to, ": ", trial.step_ns,
                                   " ", trial.exposed_ns, " ", trial.arena_bytes, " ", trial.device_bytes));
    }
    return lines;
  };
  const std::vector<std::string> one = texts(1);
  ASSERT_EQ(one.size(), changes.size());
  ASSERT_GT(one.size(), 3u);
  EXPECT_EQ(texts(3), one);
  EXPECT_EQ(texts(static_cast<int>(changes.size()) + 1), one);
}

}  // namespace
}  // namespace tandem::plan
