// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/cuda/device.h"
#include "tests/cuda/spinning_backend.h"
#include "tests/parity/expect_close.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Every strategy on GPUs, a rank a GPU, with and without recomputation.

constexpr uint64_t kTimingSeed = 11;  // of the random timing

struct Kept {
  std::string recompute = "off";
  std::string keep_gathered = "none";
};

std::string NameOf(const Kept& kept) {
  return "recompute " + kept.recompute + ", keep gathered " + kept.keep_gathered;
}

bool HasReplicas(const std::string& strategy) { return strategy[0] == 'h'; }

// ZeRO-2 and ZeRO-3 add microbatches in one rank's order, however many a rank has; the others where a rank
// has one.
bool FoldsMicrobatches(const std::string& strategy) { return strategy == "zero2" || strategy == "zero3"; }

std::vector<int> Ranks(const std::string& strategy) {
  std::vector<int> ranks;
  for (const int count : {1, 2}) {
    if (count <= device::CountCudaDevices() && (count > 1 || !HasReplicas(strategy))) {
      ranks.push_back(count);
    }
  }
  return ranks;
}

class CudaStrategyTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CudaStrategyTest,
                         testing::Values("replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"),
                         [](const auto& info) { return info.param; });

// Tier T1 against one GPU, then T0: what the backward computes or gathers again, kernels of random length in
// front of everything, and NaN in what is not written yet change no bit.
TEST_P(CudaStrategyTest, GpusRecomputationAndTimingChangeNoBit) {
  const std::string& strategy = GetParam();
  if (Ranks(strategy).empty()) {
    GTEST_SKIP() << strategy << " needs 2 GPUs";
  }
  std::vector<Kept> variants = {{.recompute = "layer"}, {.recompute = "attention,mlp"}};
  if (strategy == "zero3" || HasReplicas(strategy)) {
    variants.push_back({.keep_gathered = "all"});
    variants.push_back({.recompute = "layer", .keep_gathered = "layers.1,head"});
  }
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    for (const int ranks : Ranks(strategy)) {
      const auto run = [&](const std::string& by, int on, int rounds, const Kept& kept, RunOptions how) {
        const JobOptions options{.strategy = by,
                                 .ranks = on,
                                 .replicas = HasReplicas(by) ? 2 : 1,
                                 .microbatches_per_rank = rounds,
                                 .steps = 4,
                                 .recompute = kept.recompute,
                                 .keep_gathered = kept.keep_gathered,
                                 .on_gpus = true,
                                 .precision = precision};
        return RunJob(MakeJob(options), how);
      };
      const int rounds = FoldsMicrobatches(strategy) ? 2 : 1;
      SCOPED_TRACE(testing::Message() << strategy << " on " << ranks << " GPUs, " << precision);
      const JobRun one = run("zero3", 1, ranks * rounds, {}, cuda::OnGpus());
      EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
      const JobRun plain = run(strategy, ranks, rounds, {}, cuda::OnGpus());
      ExpectSameBits(one, plain);
      uint64_t seed = kTimingSeed;
      for (const Kept& kept : variants) {
        SCOPED_TRACE(testing::Message() << NameOf(kept) << ", seed " << ++seed);
        ExpectSameBits(plain, run(strategy, ranks, rounds, kept, cuda::OnSpinningGpus(seed)));
      }
    }
  }
}

// The gradient's norm without those of the parameters, which no kernel then adds up.
TEST(CudaNormsTest, JobsWithoutParameterNormsHaveTheSameWeights) {
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    for (const int ranks : Ranks("zero3")) {
      JobOptions options{.ranks = ranks, .steps = 4, .on_gpus = true, .precision = precision};
      const JobRun with = RunJob(MakeJob(options), cuda::OnGpus());
      options.norms = false;
      const JobRun without = RunJob(MakeJob(options), cuda::OnGpus());
      EXPECT_EQ(with.arrays, without.arrays) << ranks << " GPUs, " << precision;
      EXPECT_EQ(with.steps.back().grad_norm(), without.steps.back().grad_norm());
    }
  }
}

// Tier T2 against the head that has all logits at once; T0 where kernels have random lengths.
TEST(CudaChunkedHeadTest, LogitsInChunksTrainAsWholeOnes) {
  for (const char* precision : {"compute: COMPUTE_TYPE_FP64", "", "compute: COMPUTE_TYPE_BF16"}) {
    for (const int ranks : Ranks("zero3")) {
      SCOPED_TRACE(testing::Message() << ranks << " GPUs, " << precision);
      JobOptions options{
          .ranks = ranks, .microbatches_per_rank = 2, .steps = 4, .on_gpus = true, .precision = precision};
      const JobRun whole = RunJob(MakeJob(options), cuda::OnGpus());
      options.most_logit_bytes = 12'000;
      const plan::JobPlan plan = MakeJob(options);
      const JobRun in_chunks = RunJob(plan, cuda::OnGpus());
      if (options.precision.find("BF16") == std::string::npos) {
        ExpectClose(plan, whole, in_chunks, options.precision.empty() ? kFp32 : kFp64);
      }
      ExpectSameBits(in_chunks, RunJob(plan, cuda::OnSpinningGpus(kTimingSeed)));
    }
  }
}

TEST(CudaGroupOptionsTest, OptionsOfNcclChangeNoBit) {
  for (const int ranks : Ranks("zero3")) {
    plan::JobPlan plan = MakeJob({.ranks = ranks, .microbatches_per_rank = 2, .steps = 4, .on_gpus = true});
    const JobRun plain = RunJob(plan, cuda::OnGpus());
    plan.group_options = {{"dp_cp", {.max_ctas = 2, .net_name = "Socket"}},
                          {"dp_cp_ag", {.high_priority = true, .cga_cluster_size = 2, .min_ctas = 8}},
                          {"intra_dist_opt", {.max_ctas = 1}}};
    ExpectSameBits(plain, RunJob(plan, cuda::OnGpus()));
  }
}

}  // namespace
}  // namespace tandem::parity
