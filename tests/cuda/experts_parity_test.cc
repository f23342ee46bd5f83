// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
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

// Sparse layers on GPUs, a rank a GPU; of two, ranks share the experts and send each other tokens.

constexpr uint64_t kExpertsSeed = 41;  // of the random timing

JobOptions Sparse(int ranks) {
  return {.ranks = ranks,
          .expert_parallel = ranks,
          .microbatches_per_rank = 4,
          .steps = 4,
          .hidden = 32,
          .inner = 24,
          .heads = 4,
          .kv_heads = 2,
          .sequence_length = 16,
          .model_type = "mixtral",
          .num_experts = 8,
          .on_gpus = true};
}

// 1 and 2, as far as there are GPUs.
std::vector<int> RanksThatShareExperts() {
  std::vector<int> ranks = {1};
  if (device::CountCudaDevices() >= 2) {
    ranks.push_back(2);
  }
  return ranks;
}

// Tier T0: losses, gradients' norms, weights and moments. Kernels of random length stand in front of
// everything on every stream of the overlapped schedules, and NaN in what is not written yet.
void ExpectSameBitsOfSchedulesOnGpus(JobOptions options,
                                     const std::vector<std::string>& recompute = {"off"}) {
  const JobRun sequential = RunJob(MakeJob(options), cuda::OnGpus());
  EXPECT_EQ(FirstDifference(sequential, RunJob(MakeJob(options), cuda::OnSpinningGpus(kExpertsSeed))), "");
  if (options.expert_parallel > 1) {  // two streams compute
    options.separate_weight_gradients = true;
    EXPECT_EQ(FirstDifference(sequential, RunJob(MakeJob(options), cuda::OnSpinningGpus(kExpertsSeed + 3))),
              "");
    options.separate_weight_gradients = false;
  }
  options.overlap = true;
  for (const bool delays : {false, true}) {
    for (const std::string& again : recompute) {
      SCOPED_TRACE(testing::Message() << "delayed weight gradients: " << delays << ", recompute " << again);
      options.delay_weight_gradients = delays;
      options.recompute = again;
      EXPECT_EQ(FirstDifference(sequential,
                                RunJob(MakeJob(options), cuda::OnSpinningGpus(kExpertsSeed + 1 + delays))),
                "");
    }
  }
}

// Tier T2: what the job on GPUs computes in fp64 against the CPU. Returns the run on GPUs.
JobRun ExpectNumbersOfTheCpu(JobOptions options, const Tolerance& tolerance = kFp64) {
  options.fp64 = true;
  const JobRun run = RunJob(MakeJob(options), cuda::OnGpus());
  options.on_gpus = false;
  const plan::JobPlan on_cpu = MakeJob(options);
  ExpectClose(on_cpu, RunJob(on_cpu), run, tolerance);
  return run;
}

class CudaExpertsTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Strategies, CudaExpertsTest,
                         testing::Values("replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"),
                         [](const auto& info) { return info.param; });

TEST_P(CudaExpertsTest, SchedulesGiveTheSameBits) {
  if (GetParam()[0] == 'h' && RanksThatShareExperts().back() == 1) {
    GTEST_SKIP() << "two GPUs are needed";
  }
  for (const int ranks : RanksThatShareExperts()) {
    for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
      for (const char* chunks : {"fixed", "exact"}) {
        JobOptions options = Sparse(ranks);
        options.strategy = GetParam();
        if (options.strategy[0] == 'h') {  // of two ranks that are copies of each other
          if (ranks == 1) {
            continue;
          }
          options.replicas = 2;
          options.expert_parallel = 1;
        }
        if (options.expert_parallel == 1 && chunks[0] == 'e') {
          continue;  // no rank sends anything
        }
        options.precision = precision;
        options.chunks = chunks;
        options.layers = ranks == 1 ? 3 : 2;
        SCOPED_TRACE(testing::Message()
                     << ranks << " GPUs share experts, " << chunks << " chunks, " << precision);
        ExpectSameBitsOfSchedulesOnGpus(options);
      }
    }
  }
}

// Tier T2 against ranks that have every expert, and against the CPU.
TEST(CudaExpertParallelTest, HasNumbersOfReplicatedExpertsAndTheCpu) {
  for (const int ranks : RanksThatShareExperts()) {
    SCOPED_TRACE(testing::Message() << ranks << " GPUs");
    JobOptions options = Sparse(ranks);
    options.fp64 = true;
    options.validate_every_steps = 2;
    const plan::JobPlan plan = MakeJob(options);
    const JobRun run = RunJob(plan, cuda::OnGpus());
    options.expert_parallel = 1;
    const plan::JobPlan whole = MakeJob(options);
    ExpectClose(whole, RunJob(whole, cuda::OnGpus()), run, kFp64);
    options.on_gpus = false;
    const plan::JobPlan on_cpu = MakeJob(options);
    ExpectClose(on_cpu, RunJob(on_cpu), run, kFp64);
    const Tolerance distance = DistanceBetween(on_cpu, RunJob(on_cpu), run);
    std::cout << ranks << " GPUs against the CPU, fp64: losses " << distance.loss << ", state "
              << distance.state << ", norms " << distance.later_norm << "\n";
  }
}

// Ranks exchange the tokens' numbers of every microbatch over NCCL, and a sum goes from one to the next.
TEST(CudaExpertParallelTest, TheGlobalBalanceIsThatOfTheCpu) {
  for (const int ranks : RanksThatShareExperts()) {
    SCOPED_TRACE(testing::Message() << ranks << " GPUs");
    JobOptions options = Sparse(ranks);
    options.balance_scope = "global";
    options.router_aux_loss = 0.5;  // so large that it is seen in every number
    ExpectSameBitsOfSchedulesOnGpus(options);
    ExpectNumbersOfTheCpu(options);
  }
}

// Whatever the chunks, what is computed is the same.
TEST(CudaExpertParallelTest, ExactChunksHaveTheBitsOfFixedOnes) {
  if (device::CountCudaDevices() < 2) {
    GTEST_SKIP() << "needs 2 GPUs";
  }
  JobOptions options = Sparse(2);
  options.overlap = true;
  options.chunks = "fixed";
  const JobRun fixed = RunJob(MakeJob(options), cuda::OnGpus());
  options.chunks = "exact";
  EXPECT_EQ(FirstDifference(fixed, RunJob(MakeJob(options), cuda::OnSpinningGpus(kExpertsSeed))), "");
}

// Norms of heads; latent attention, shared experts, softmax and sigmoid scores in groups, biases of experts.
TEST(CudaExpertParallelTest, SchedulesHaveCpuNumbersAndTheSameBits) {
  for (const char* type : {"qwen3_moe", "deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(type);
    JobOptions options = Sparse(RanksThatShareExperts().back());
    options.model_type = type;
    if (type[0] == 'd') {
      options.layers = 3;
      options.experts_per_token = 4;
      options.bias_update_rate = type == std::string("deepseek_v3") ? 0.01 : 0;
    }
    ExpectSameBitsOfSchedulesOnGpus(options);
    ExpectNumbersOfTheCpu(options);
  }
}

// Mixers and delta nets alone, in groups with attention and experts, and mixers as Nemotron-H has them;
// documents end within them.
TEST(CudaPatternTest, SchedulesHaveCpuNumbersAndTheSameBits) {
  for (const int64_t end_of_document : {-1, 32}) {
    SCOPED_TRACE(testing::Message() << "documents end with " << end_of_document);
    JobOptions options = Sparse(RanksThatShareExperts().back());
    options.end_of_document = end_of_document;
    options.model_type = "hybrid";
    options.pattern = "[M*E]MG[G*E]-";
    ExpectSameBitsOfSchedulesOnGpus(options, {"off", "layer"});
    ExpectNumbersOfTheCpu(options);
    options.model_type = "nemotron_h";
    options.pattern = "M-*-";
    options.num_experts = 0;
    options.expert_parallel = 1;
    ExpectSameBitsOfSchedulesOnGpus(options);
    ExpectNumbersOfTheCpu(options);
  }
}

// Of a model in bf16, over 20 steps.
void ExpectLossCurveOfTheCpu(JobOptions options) {
  options.steps = 20;
  options.precision = "compute: COMPUTE_TYPE_BF16";
  const JobRun gpu = RunJob(MakeJob(options), cuda::OnGpus());
  options.on_gpus = false;
  const JobRun cpu = RunJob(MakeJob(options));
  double loss = 0;
  for (size_t i = 0; i < cpu.steps.size(); ++i) {
    loss = std::max(loss, std::abs(gpu.steps[i].loss() / cpu.steps[i].loss() - 1));
  }
  std::cout << options.ranks << " GPUs, bf16: loss " << cpu.steps.front().loss() << " to "
            << cpu.steps.back().loss() << ", largest difference " << loss << "\n";
  EXPECT_LE(loss, 1.0 / 100);
  EXPECT_LT(gpu.steps.back().loss(), gpu.steps.front().loss());
}

TEST(CudaExpertParallelTest, Bf16HasALossCurveNearTheCpus) {
  for (const int ranks : RanksThatShareExperts()) {
    ExpectLossCurveOfTheCpu(Sparse(ranks));
  }
}

TEST(CudaPatternTest, Bf16HasALossCurveNearTheCpus) {
  JobOptions options = Sparse(RanksThatShareExperts().back());
  options.model_type = "hybrid";
  options.pattern = "[M*E]G[*E]-";
  ExpectLossCurveOfTheCpu(options);
}

// A text of one letter, nearly: the router sends the same token to the same experts again and again, so that
// one rank has more rows than are computed at a time.
TEST(CudaExpertParallelTest, SkewChangesNoBitAndNoNumber) {
  if (device::CountCudaDevices() < 2) {
    GTEST_SKIP() << "needs 2 GPUs";
  }
  const TemporaryFolder folder;
  std::ofstream text(folder.path() + "/text");
  for (int i = 0; i < 20000; ++i) {
    text << (i % 20 == 7 ? static_cast<char>('b' + i % 23) : 'a');
  }
  text.close();
  JobOptions options = Sparse(2);
  options.microbatches_per_rank = 2;
  options.num_experts = 4;
  options.router_aux_loss = 0;
  options.text = folder.path() + "/text";
  ExpectSameBitsOfSchedulesOnGpus(options, {"off", "layer"});
  options.fp64 = true;
  const JobRun run = RunJob(MakeJob(options), cuda::OnGpus());
  options.expert_parallel = 1;
  const plan::JobPlan whole = MakeJob(options);
  ExpectClose(whole, RunJob(whole, cuda::OnGpus()), run, kFp64);
}

// Room for some tokens only.
TEST(CudaExpertParallelTest, CapacityDropsWhatItDropsOnTheCpu) {
  for (const bool by_position : {false, true}) {
    SCOPED_TRACE(by_position);
    JobOptions options = Sparse(RanksThatShareExperts().back());
    options.capacity_factor = 1;
    options.drop_by_position = by_position;
    ExpectSameBitsOfSchedulesOnGpus(options);
    EXPECT_GT(ExpectNumbersOfTheCpu(options).steps.front().scalars().at("moe_dropped"), 0);
  }
}

// Their rows are known on the host, and their products are cuBLASLt's.
TEST(CudaExpertParallelTest, PaddedExpertsHaveCpuNumbersAndEqualBits) {
  JobOptions options = Sparse(RanksThatShareExperts().back());
  options.capacity_factor = 1.25;
  options.drop_by_position = true;
  options.pad_to_capacity = true;
  for (const char* precision : {"", "compute: COMPUTE_TYPE_BF16"}) {
    SCOPED_TRACE(precision);
    options.precision = precision;
    ExpectSameBitsOfSchedulesOnGpus(options);
  }
  options.precision.clear();
  ExpectNumbersOfTheCpu(options);
}

TEST(CudaExpertParallelTest, TheArenasSizeIsThePlans) {
  JobOptions options = Sparse(RanksThatShareExperts().back());
  options.overlap = true;
  const plan::JobPlan plan = MakeJob(options);
  const JobRun run = RunJob(plan, cuda::OnGpus());
  for (const int64_t bytes : run.arena_bytes) {
    EXPECT_EQ(bytes, plan.stage.arena_bytes);
  }
}

}  // namespace
}  // namespace tandem::parity
