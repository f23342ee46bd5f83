// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "plan/prediction.h"
#include "schedules/passes/live_locals.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

int64_t BytesOf(const MemoryPlan& memory, schedules::BufferKind kind) {
  return memory.persistent[static_cast<int>(kind)];
}

TEST(MemoryPlanTest, ItsRowsAddUpToTheArena) {
  for (const char* parallelism : {"{ranks: 1}", "{ranks: 2}", "{ranks: 3, fsdp: {prefetch: 2}}"}) {
    const JobPlan plan = MakeJobPlan(TestJob(parallelism));
    const MemoryPlan memory = PlanMemory(plan);
    EXPECT_EQ(memory.arena_bytes, plan.stage.arena_bytes);
    EXPECT_EQ(memory.persistent_bytes + memory.alive_bytes + memory.gap_bytes, memory.arena_bytes);
    EXPECT_GE(memory.gap_bytes, 0);
    EXPECT_LE(schedules::Total(memory.persistent), memory.persistent_bytes);
    EXPECT_LE(memory.persistent_bytes, schedules::Total(memory.persistent) + 256 * 100);
  }
}

TEST(MemoryPlanTest, WhatIsAliveStaysWithinTheBudget) {
  for (const char* prefetch : {"0", "1", "2"}) {
    const MemoryPlan memory =
        PlanMemory(MakeJobPlan(TestJob(std::string("{ranks: 2, fsdp: {prefetch: ") + prefetch + "}}")));
    EXPECT_EQ(memory.budget_bytes, memory.default_budget_bytes);
    EXPECT_LE(memory.alive_bytes, memory.budget_bytes);
    EXPECT_LE(memory.least_budget_bytes, memory.default_budget_bytes);
    EXPECT_GT(memory.least_budget_bytes, 0);
  }
}

TEST(MemoryPlanTest, ShardsShrinkWithRanks) {
  using schedules::BufferKind;
  const MemoryPlan one = PlanMemory(MakeJobPlan(TestJob("{ranks: 1}")));
  const MemoryPlan two = PlanMemory(MakeJobPlan(TestJob("{ranks: 2}")));
  EXPECT_NEAR(static_cast<double>(BytesOf(two, BufferKind::kOptimizerState)),
              static_cast<double>(BytesOf(one, BufferKind::kOptimizerState)) / 2, 8192);
  EXPECT_EQ(BytesOf(one, BufferKind::kOptimizerState), 2 * BytesOf(one, BufferKind::kWeights));
  EXPECT_EQ(BytesOf(one, BufferKind::kGradients), BytesOf(one, BufferKind::kWeights));
  EXPECT_LT(two.arena_bytes, one.arena_bytes);
}

TEST(MemoryPlanTest, OutsideCountsTheCommunicatorsOfSeveralRanksAndOfOne) {
  schedules::DeviceProfile profile;
  const JobPlan two = MakeJobPlan(TestJob("{ranks: 2}"));
  EXPECT_EQ(OutsideBytes(two, profile), 0) << "the profile does not know";
  profile.context_bytes = 1000;
  profile.communicator_bytes = 7;
  profile.lone_communicator_bytes = 100;
  EXPECT_EQ(OutsideBytes(two, profile), 1000 + 3 * 7);
  EXPECT_EQ(OutsideBytes(MakeJobPlan(TestJob("{ranks: 1}")), profile), 1000 + 3 * 100);
  // Both replicas are one rank: its gathers and reductions are within it.
  EXPECT_EQ(OutsideBytes(MakeJobPlan(TestJob("{ranks: 2, fsdp: {strategy: hsdp}}")), profile),
            1000 + 2 * 7 + 2 * 100);
}

v1::JobSpec Llama(int layers, int ranks, int64_t sequence_length, int microbatches) {
  const jobspec::ReadResult read = jobspec::ReadText(
      absl::StrCat("name: llama\nmodel: {preset: llama-3-8b, num_hidden_layers: ", layers,
                   "}\ndata: {train: /data, tokenizer: bytes}\ntraining: {steps: 10, sequence_length: ",
                   sequence_length, ", micro_batch_size: 1, global_batch_size: ", microbatches * ranks,
                   "}\nparallelism: {ranks: ", ranks, "}\nprecision: {compute: fp32}\n"),
      "test.yaml");
  EXPECT_TRUE(read.violations.empty());
  EXPECT_TRUE(jobspec::Validate(read.spec).empty());
  return jobspec::Resolve(read.spec);
}

constexpr double kGibibyte = 1 << 30;

TEST(MemoryPlanTest, FourLlamaLayersInFp32OnTwoRanksFitIn25GiB) {
  const MemoryPlan memory = PlanMemory(MakeJobPlan(Llama(4, 2, 4096, 1)));
  EXPECT_LE(static_cast<double>(memory.arena_bytes) / kGibibyte, 25);
}

TEST(MemoryPlanTest, AGpusPlanHasTheScratchOfItsKernels) {
  v1::JobSpec job = Llama(4, 2, 4096, 1);
  job.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BF16);
  job.mutable_precision()->set_transport(v1::COMPUTE_TYPE_BF16);
  const auto scratch_of = [&](v1::Device device) {
    job.mutable_resources()->set_device(device);
    int64_t most = 0;
    for (const schedules::Node& node : MakeJobPlan(job).outline.nodes) {
      if (node.kind == schedules::NodeKind::kAttention) {
        most = std::max(most, node.backward.scratch.bound);
      }
    }
    return most;
  };
  // The repeatable backward of attention keeps a GiB of gradients of scores; a processor's kernels do not.
  EXPECT_GT(scratch_of(v1::DEVICE_CUDA), int64_t{1} << 30);
  EXPECT_LT(scratch_of(v1::DEVICE_CPU), int64_t{1} << 29);
  EXPECT_EQ(scratch_of(v1::DEVICE_AUTO), scratch_of(v1::DEVICE_CPU));
}

TEST(MemoryPlanTest, LocalsOfLlamaPlansTakeAtMostATwentiethMoreThanTheirBudget) {
  for (const int ranks : {8, 512}) {
    const JobPlan plan = MakeJobPlan(Llama(32, ranks, 8192, 4));
    const MemoryPlan memory = PlanMemory(plan);
    const int64_t locals = memory.arena_bytes - memory.persistent_bytes;
    EXPECT_LE(static_cast<double>(locals), 1.05 * static_cast<double>(memory.budget_bytes)) << ranks;
    EXPECT_LE(schedules::MostBytesAlive(plan.stage.train), memory.budget_bytes) << ranks;
  }
}

TEST(MemoryPlanTest, MemoryWaitsOfLlamaPlansCostAtMostHalfAPercentOfTheStep) {
  for (const int ranks : {8, 512}) {
    const JobPlan plan = MakeJobPlan(Llama(32, ranks, 8192, 4));
    const Prediction prediction = *Predict(plan, *schedules::PresetProfile("h200"));
    EXPECT_GT(prediction.memory_waits.count, 0);
    EXPECT_LE(static_cast<double>(prediction.memory_waits.cost_ns),
              0.005 * static_cast<double>(prediction.step_ns));
  }
}

}  // namespace
}  // namespace tandem::plan
