// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/resume_job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Jobs in bfloat16, with fp32 main weights, moments and accumulators: tiers T0 and T1 hold as they do in
// fp32, because every contribution is rounded before it is reduced, on one rank as on many.

constexpr char kBf16Compute[] = "compute: COMPUTE_TYPE_BF16";
constexpr char kBf16WithFp32Transport[] = "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32";
// Two types of parameters, and of gradients between ranks, in one model.
constexpr char kFp32Head[] = "compute: COMPUTE_TYPE_BF16 head { compute: COMPUTE_TYPE_FP32 }";
constexpr char kBf16Head[] =
    "compute: COMPUTE_TYPE_FP32 head { compute: COMPUTE_TYPE_BF16 } embedding { compute: COMPUTE_TYPE_BF16 }";

struct Policy {
  const char* name;
  const char* precision;
  bool tied;
};
std::ostream& operator<<(std::ostream& out, const Policy& policy) { return out << policy.name; }

class PrecisionTest : public testing::TestWithParam<Policy> {
 protected:
  JobOptions Options(int64_t steps) const {
    return {.steps = steps, .tied = GetParam().tied, .precision = GetParam().precision};
  }
};

TEST_P(PrecisionTest, PrefetchAndStreamOrdersChangeNoBit) {
  JobOptions options = Options(2);
  options.ranks = 2;
  options.microbatches_per_rank = 2;
  options.validate_every_steps = 1;
  const JobRun ordinary = RunJob(MakeJob(options));
  for (const int prefetch : {0, 2}) {
    options.prefetch = prefetch;
    ExpectSameBits(ordinary, RunJob(MakeJob(options)));
  }
  ExpectSameBitsInOrders(ordinary, MakeJob(options), 10);
}

TEST_P(PrecisionTest, LossesAreCloseToThoseInFp32) { ExpectLossesNearFp32(Options(40)); }

INSTANTIATE_TEST_SUITE_P(Policies, PrecisionTest,
                         testing::Values(Policy{"bf16", kBf16Compute, false},
                                         Policy{"bf16_tied", kBf16Compute, true},
                                         Policy{"fp32_transport", kBf16WithFp32Transport, false},
                                         Policy{"fp32_transport_tied", kBf16WithFp32Transport, true},
                                         Policy{"fp32_head", kFp32Head, false},
                                         Policy{"bf16_embedding_and_head", kBf16Head, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// The types are those of the memory, not only of the arithmetic.
TEST(PrecisionBytesTest, GathersAndReductionsMoveWhatTheTypesTake) {
  const auto bytes = [](const std::string& precision, schedules::BufferKind kind, const std::string& unit) {
    const plan::JobPlan plan = MakeJob({.ranks = 2, .precision = precision});
    for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
      if (buffer.kind == kind && plan.outline.units[buffer.subject].name == unit) {
        return buffer.bytes.bound;
      }
    }
    return int64_t{0};
  };
  using schedules::BufferKind;
  // Layouts are equal: bfloat16 is somewhere in each.
  const int64_t weights = bytes(kBf16Compute, BufferKind::kWeights, "layers.0");
  EXPECT_EQ(bytes(kBf16Compute, BufferKind::kPublished, "layers.0"), weights / 2);
  EXPECT_EQ(bytes(kBf16Compute, BufferKind::kGathered, "layers.0"), weights);      // 2 ranks
  EXPECT_EQ(bytes(kBf16Compute, BufferKind::kContribution, "layers.0"), weights);  // 2 ranks
  EXPECT_EQ(bytes(kBf16Compute, BufferKind::kGradients, "layers.0"), weights);
  EXPECT_EQ(bytes(kBf16Compute, BufferKind::kOptimizerState, "layers.0"), 2 * weights);
  EXPECT_EQ(bytes(kBf16WithFp32Transport, BufferKind::kContribution, "layers.0"), 2 * weights);
  const int64_t head = bytes(kFp32Head, BufferKind::kWeights, "head");
  EXPECT_EQ(bytes(kFp32Head, BufferKind::kPublished, "head"), 0);
  EXPECT_EQ(bytes(kFp32Head, BufferKind::kGathered, "head"), 2 * head);
  EXPECT_EQ(bytes(kFp32Head, BufferKind::kGathered, "layers.0"), weights);
}

TEST(PrecisionResumeTest, ResumesInAnotherPrecisionOfThatMainType) {
  const TemporaryFolder folder;
  JobOptions options{.ranks = 2,
                     .steps = 3,
                     .precision = kBf16Compute,
                     .checkpoint_directory = folder.path(),
                     .checkpoint_every_steps = 2};
  const JobRun bf16 = RunJob(MakeJob(options));
  const TemporaryFolder other;
  options.precision.clear();
  options.checkpoint_directory = other.path();
  options.checkpoint_every_steps = 0;
  options.resume = folder.path() + "/step-2";
  const JobRun fp32 = RunJob(MakeJob(options));
  EXPECT_EQ(fp32.resumed_step, 2);
  ASSERT_EQ(fp32.steps.size(), 1u);
  // Step 3 computes on the same main weights, but not on rounded ones.
  EXPECT_NE(fp32.steps[0].loss(), bf16.steps[2].loss());
  EXPECT_NEAR(fp32.steps[0].loss(), bf16.steps[2].loss(), 0.01);

  // And back.
  options.steps = 4;
  options.precision = kBf16WithFp32Transport;
  options.resume = other.path() + "/step-3";
  EXPECT_EQ(RunJob(MakeJob(options)).resumed_step, 3);
}

// Whether the layouts of the two types differ, as where a parameter does not fill 128 bytes, or are the same.
TEST(PrecisionResumeTest, AnotherMainTypeIsRefusedByName) {
  for (const int64_t hidden : {int64_t{32}, int64_t{64}}) {
    const TemporaryFolder folder;
    JobOptions options{.ranks = 1,
                       .steps = 2,
                       .hidden = hidden,
                       .precision = kBf16Compute,
                       .checkpoint_directory = folder.path()};
    RunJob(MakeJob(options));
    options.precision.clear();
    options.fp64 = true;
    options.steps = 3;
    options.resume = "newest";
    EXPECT_EQ(RefusalOf(MakeJob(options)).message,
              absl::StrCat("checkpoint.resume: ", folder.path(),
                           "/step-2 holds weights in fp32, and this job's are in fp64; allowed: precision: "
                           "{compute: fp32 or bf16}, or start in another folder"));
  }
  const TemporaryFolder folder;
  JobOptions options{.ranks = 1, .steps = 2, .fp64 = true, .checkpoint_directory = folder.path()};
  RunJob(MakeJob(options));
  options.fp64 = false;
  options.steps = 3;
  options.resume = "newest";
  EXPECT_EQ(RefusalOf(MakeJob(options)).message,
            absl::StrCat("checkpoint.resume: ", folder.path(),
                         "/step-2 holds weights in fp64, and this job's are in fp32; allowed: precision: "
                         "{compute: fp64}, or start in another folder"));
}

}  // namespace
}  // namespace tandem::parity
