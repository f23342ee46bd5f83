// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "device/cuda/device.h"
#include "tests/cuda/spinning_backend.h"
#include "tests/parity/expect_same.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Whole jobs on GPUs, a rank a GPU: the programs of the CPU, unchanged.

plan::JobPlan MakeGpuJob(JobOptions options) {
  options.on_gpus = true;
  return MakeJob(options);
}

// 1, 2 and 4, as far as there are GPUs.
std::vector<int> Ranks() {
  std::vector<int> ranks;
  for (const int count : {1, 2, 4}) {
    if (count <= device::CountCudaDevices()) {
      ranks.push_back(count);
    }
  }
  return ranks;
}

// Tier T0: kernels of random length in front of everything on every stream change no bit; nor do a
// repetition, another prefetch distance, and NaN in what is not written yet.
TEST(CudaParityTest, RandomTimingChangesNoBit) {
  for (const int ranks : Ranks()) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(testing::Message() << ranks << " GPUs" << (tied ? ", tied" : ""));
      JobOptions options{.ranks = ranks, .microbatches_per_rank = 3, .steps = 5, .tied = tied};
      const JobRun plain = RunJob(MakeGpuJob(options), cuda::OnGpus());
      ASSERT_EQ(plain.steps.size(), 5u);
      ExpectSameBits(plain, RunJob(MakeGpuJob(options), cuda::OnGpus()));
      for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        options.prefetch = static_cast<int>(seed % 3);
        const JobRun spun = RunJob(MakeGpuJob(options), cuda::OnSpinningGpus(seed, seed % 2 == 0));
        ExpectSameBits(plain, spun);
      }
    }
  }
}

// Tier T1: the same microbatches, shared among any number of GPUs.
TEST(CudaParityTest, OneTwoAndFourGpusGiveEqualBits) {
  for (const bool fp64 : {false, true}) {
    for (const bool tied : {false, true}) {
      JobOptions options{.steps = 20, .tied = tied, .fp64 = fp64, .validate_every_steps = 5};
      const auto run = [&](int ranks) {
        options.ranks = ranks;
        options.microbatches_per_rank = 12 / ranks;
        return RunJob(MakeGpuJob(options), cuda::OnGpus());
      };
      const JobRun one = run(1);
      EXPECT_LT(one.steps.back().loss(), one.steps.front().loss());
      for (const int ranks : Ranks()) {
        SCOPED_TRACE(testing::Message()
                     << ranks << " GPUs" << (tied ? ", tied" : "") << (fp64 ? ", fp64" : ""));
        const JobRun many = run(ranks);
        ExpectSameBits(one, many);
        EXPECT_EQ(one.steps.back().scalars().at("validation_loss"),
                  many.steps.back().scalars().at("validation_loss"));
      }
    }
  }
}

// Tier T2: the GPU's loss curve is the CPU's. In fp64 rounding stays small over 50 steps; fp32 grows with
// them.
TEST(CudaParityTest, TheLossCurveIsTheCpus) {
  for (const bool fp64 : {true, false}) {
    for (const int ranks : Ranks()) {
      const JobOptions options{.ranks = ranks,
                               .microbatches_per_rank = 4 / ranks,
                               .steps = 50,
                               .hidden = 64,
                               .inner = 96,
                               .sequence_length = 64,
                               .fp64 = fp64};
      const JobRun cpu = RunJob(MakeJob(options));
      const JobRun gpu = RunJob(MakeGpuJob(options), cuda::OnGpus());
      ASSERT_EQ(cpu.steps.size(), gpu.steps.size());
      double loss = 0;
      double norm = 0;
      for (size_t i = 0; i < cpu.steps.size(); ++i) {
        loss = std::max(loss, std::abs(gpu.steps[i].loss() / cpu.steps[i].loss() - 1));
        norm = std::max(norm, std::abs(gpu.steps[i].grad_norm() / cpu.steps[i].grad_norm() - 1));
        ASSERT_EQ(cpu.steps[i].norms().weight_size(), gpu.steps[i].norms().weight_size());
      }
      std::cout << ranks << " GPUs, " << (fp64 ? "fp64" : "fp32") << ": loss " << cpu.steps.front().loss()
                << " to " << cpu.steps.back().loss() << ", largest difference " << loss << ", of the norm "
                << norm << "\n";
      EXPECT_LT(cpu.steps.back().loss(), 0.8 * cpu.steps.front().loss());
      EXPECT_LE(loss, fp64 ? 1e-12 : 2e-6 * 50);
      EXPECT_LE(std::abs(gpu.steps[0].loss() / cpu.steps[0].loss() - 1), fp64 ? 1e-13 : 2e-6);
      EXPECT_LE(std::abs(gpu.steps[0].grad_norm() / cpu.steps[0].grad_norm() - 1), fp64 ? 1e-12 : 2e-6);
    }
  }
}

// Tiers T1 and T2 of the other dense families: biases, norms by head and of all heads together, norms behind
// attention and MLP, windows.
TEST(CudaParityTest, OtherFamiliesHaveCpuLossesAndEqualBits) {
  for (const auto& [model_type, has_biases] :
       {std::pair("qwen2", false), std::pair("qwen3", false), std::pair("olmo2", false),
        std::pair("mistral", false), std::pair("llama", true), std::pair("olmo2", true)}) {
    for (const bool packed : {false, true}) {
      JobOptions options{.steps = 5,
                         .hidden = 64,
                         .inner = 96,
                         .sequence_length = 64,
                         .model_type = model_type,
                         .has_biases = has_biases,
                         .fp64 = true};
      options.sliding_window = options.model_type == "mistral" ? 20 : 0;
      options.end_of_document = packed ? ' ' : -1;
      const auto of = [&](int ranks) {
        options.ranks = ranks;
        options.microbatches_per_rank = 4 / ranks;
        return options;
      };
      const JobRun cpu = RunJob(MakeJob(of(1)));
      const JobRun one = RunJob(MakeGpuJob(of(1)), cuda::OnGpus());
      for (size_t i = 0; i < cpu.steps.size(); ++i) {
        SCOPED_TRACE(testing::Message() << model_type << (has_biases ? ", biases" : "")
                                        << (packed ? ", packed, step " : ", step ") << i);
        EXPECT_LE(std::abs(one.steps.at(i).loss() / cpu.steps[i].loss() - 1), 1e-12);
        EXPECT_LE(std::abs(one.steps[i].grad_norm() / cpu.steps[i].grad_norm() - 1), 1e-11);
      }
      for (const int ranks : Ranks()) {
        SCOPED_TRACE(testing::Message() << model_type << " on " << ranks << " GPUs");
        ExpectSameBits(one, RunJob(MakeGpuJob(of(ranks)), cuda::OnGpus()));
      }
    }
  }
}

// The same tiers with bfloat16 in the job. Both transports, and two types of parameters in one model.
class CudaPrecisionTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Precisions, CudaPrecisionTest,
    testing::Values("compute: COMPUTE_TYPE_BF16", "compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32",
                    "compute: COMPUTE_TYPE_BF16 head { compute: COMPUTE_TYPE_FP32 } embedding { compute: "
                    "COMPUTE_TYPE_FP32 }"));

TEST_P(CudaPrecisionTest, TimingAndGpuCountChangeNoBit) {
  for (const bool tied : {false, true}) {
    JobOptions options{.steps = 5, .tied = tied, .precision = GetParam()};
    const auto job = [&](int ranks) {
      options.ranks = ranks;
      options.microbatches_per_rank = 12 / ranks;
      return MakeGpuJob(options);
    };
    const JobRun one = RunJob(job(1), cuda::OnGpus());
    for (const int ranks : Ranks()) {
      for (const uint64_t seed : {1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << ranks << " GPUs, seed " << seed << (tied ? ", tied" : ""));
        ExpectSameBits(one, RunJob(job(ranks), cuda::OnSpinningGpus(seed, seed % 2 == 0)));
      }
    }
  }
}

// Sums of bfloat16 products have another order on each device, and results are rounded to 8 digits.
TEST_P(CudaPrecisionTest, TheLossCurveIsNearTheCpus) {
  const JobOptions options{.microbatches_per_rank = 4, .steps = 30, .precision = GetParam()};
  const JobRun cpu = RunJob(MakeJob(options));
  const JobRun gpu = RunJob(MakeGpuJob(options), cuda::OnGpus());
  double loss = 0;
  for (size_t i = 0; i < cpu.steps.size(); ++i) {
    loss = std::max(loss, std::abs(gpu.steps[i].loss() / cpu.steps[i].loss() - 1));
  }
  const double norm = std::abs(gpu.steps[0].grad_norm() / cpu.steps[0].grad_norm() - 1);
  std::cout << "loss " << cpu.steps.front().loss() << " to " << cpu.steps.back().loss()
            << ", largest difference " << loss << ", of the first norm " << norm << "\n";
  EXPECT_LE(loss, 1.0 / 256);
  EXPECT_LE(norm, 1.0 / 128);
}

// In fp64 in blocks of scores, in bfloat16 by cuDNN.
TEST(CudaParityTest, PackedDocumentsTrainAsOnTheCpu) {
  for (const bool fp64 : {true, false}) {
    JobOptions options{.microbatches_per_rank = 2, .steps = 10, .fp64 = fp64, .validate_every_steps = 5};
    options.precision = fp64 ? "" : "compute: COMPUTE_TYPE_BF16";
    options.end_of_document = ' ';
    const JobRun cpu = RunJob(MakeJob(options));
    const JobRun gpu = RunJob(MakeGpuJob(options), cuda::OnGpus());
    ASSERT_EQ(gpu.steps.size(), 10u);
    for (size_t i = 0; i < gpu.steps.size(); ++i) {
      EXPECT_NEAR(gpu.steps[i].loss() / cpu.steps[i].loss(), 1, fp64 ? 1e-12 : 1.0 / 256) << "step " << i + 1;
    }
    EXPECT_NEAR(
        gpu.steps.back().scalars().at("validation_loss") / cpu.steps.back().scalars().at("validation_loss"),
        1, fp64 ? 1e-12 : 1.0 / 256);
    ExpectSameBits(gpu, RunJob(MakeGpuJob(options), cuda::OnSpinningGpus(7, /*fill_with_nan=*/true)));
  }
}

TEST(CudaParityTest, TheArenasSizeIsThePlans) {
  const plan::JobPlan plan = MakeGpuJob({.microbatches_per_rank = 2, .steps = 2, .validate_every_steps = 1});
  const JobRun run = RunJob(plan, cuda::OnGpus());
  EXPECT_EQ(run.arena_bytes[0], plan.stage.arena_bytes);
}

// Both devices read each other's checkpoints, and a run that goes on from one is as if it had not stopped.
TEST(CudaParityTest, ACheckpointHoldsTheWholeState) {
  const TemporaryFolder folder;
  JobOptions options{
      .ranks = device::CountCudaDevices() >= 2 ? 2 : 1, .microbatches_per_rank = 2, .steps = 6};
  plan::JobPlan whole = MakeGpuJob(options);
  const JobRun straight = RunJob(whole, cuda::OnGpus());
  options.checkpoint_directory = folder.path();
  options.checkpoint_every_steps = 3;
  plan::JobPlan first = MakeGpuJob(options);
  first.train.steps = 6;
  const JobRun saved = RunJob(first, cuda::OnGpus());
  EXPECT_EQ(saved.checkpoints, (std::vector<int64_t>{3, 6}));
  ExpectSameBits(straight, saved);
  options.resume = folder.path() + "/step-3";
  options.checkpoint_directory = folder.path() + "/again";
  const JobRun resumed = RunJob(MakeGpuJob(options), cuda::OnGpus());
  EXPECT_EQ(resumed.resumed_step, 3);
  EXPECT_TRUE(straight.arrays == resumed.arrays);
  options.checkpoint_directory = folder.path() + "/cpu";
  const JobRun on_cpu = RunJob(MakeJob(options));
  EXPECT_EQ(on_cpu.resumed_step, 3);
  EXPECT_NEAR(on_cpu.steps.back().loss(), straight.steps.back().loss(), 1e-5);
}

TEST(CudaParityTest, StepsWithoutFiniteGradientsLeaveTheWeightsAlone) {
  plan::JobPlan plan = MakeGpuJob({.steps = 2});
  plan.train.optimizer.schedule.warmup_steps = 0;
  plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
  plan.train.optimizer.schedule.peak = 1e30;
  const JobRun two = RunJob(plan, cuda::OnGpus());
  plan.train.steps = 5;
  const JobRun five = RunJob(plan, cuda::OnGpus());
  ASSERT_EQ(five.steps.size(), 5u);
  EXPECT_EQ(five.steps[0].nonfinite(), 0);
  for (size_t i = 1; i < five.steps.size(); ++i) {
    EXPECT_GT(five.steps[i].nonfinite(), 0);
  }
  EXPECT_TRUE(two.arrays == five.arrays);
}

}  // namespace
}  // namespace tandem::parity
