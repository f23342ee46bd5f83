// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fsdp/layout.h"
#include "jobspec/jobspec.h"
#include "plan/prediction.h"
#include "platform/files.h"
#include "schedules/passes/live_locals.h"
#include "schedules/passes/segments.h"
#include "schedules/simulate/device_profile.h"
#include "tests/plan/test_job.h"
#include "tests/schedules/overlap_bound.h"

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

TEST(MemoryPlanTest, MachineHoldsTheCopiesOfItsRanks) {
  v1::JobSpec spec = TestJob("{ranks: 6}");
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  schedules::DeviceProfile profile;  // of one machine
  const JobPlan plan = MakeJobPlan(spec);
  const int64_t saved = PlanMemory(plan).saved_bytes;
  ASSERT_GT(saved, 0);
  EXPECT_EQ(PlanMachineMemory(plan, profile).ranks, 6);
  EXPECT_EQ(PlanMachineMemory(plan, profile).saved_bytes, 6 * saved);
  profile.link.max_ranks = 3;
  EXPECT_EQ(PlanMachineMemory(plan, profile).ranks, 6) << "all are on it where there is no network";
  profile.network.bytes_per_second = 1e9;
  EXPECT_EQ(PlanMachineMemory(plan, profile).ranks, 3);
  spec.mutable_resources()->set_ranks_per_worker(2);
  const MachineMemory machine = PlanMachineMemory(MakeJobPlan(spec), profile);
  EXPECT_EQ(machine.ranks, 2);
  EXPECT_EQ(machine.saved_bytes, 2 * saved);
  EXPECT_EQ(machine.wanted_bytes, 2 * (plan.stage.host_bytes + plan.stage.arena_bytes)) << "of a CPU";
}

TEST(MemoryPlanTest, OnlyCpusCountTheArenaAsHostMemory) {
  const schedules::StagePrograms stage{.arena_bytes = 100, .host_bytes = 30, .saved_at = 10};
  EXPECT_EQ(HostBytesWanted(stage, model::DeviceKind::kGpu), 30);
  EXPECT_EQ(HostBytesWanted(stage, model::DeviceKind::kCpu), 130);
}

// As a rank decides when it starts (trainer/stage_memory.h).
TEST(MemoryPlanTest, MachineNeedsTheLeastThatSparesATenth) {
  JobPlan plan;
  plan.topology.world = 1;
  plan.device = model::DeviceKind::kGpu;
  for (int64_t bytes = 1; bytes < 1000; ++bytes) {
    plan.stage.host_bytes = bytes;
    const MachineMemory machine = PlanMachineMemory(plan, {});
    ASSERT_LE(machine.wanted_bytes, MostHostBytes(machine.needed_bytes)) << bytes;
    ASSERT_GT(machine.wanted_bytes, MostHostBytes(machine.needed_bytes - 1)) << bytes;
  }
}

TEST(MemoryPlanTest, CheckpointTakesFilePartAndConvertedFrozenUnits) {
  const auto bytes = [](const std::string& precision, const std::string& frozen,
                        const std::string& checkpoint) {
    JobPlan plan = MakeJobPlan(TestJob("{ranks: 2}", precision));
    plan.train.checkpoint.directory = checkpoint;
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      plan.outline.units[unit].frozen = plan.units[unit].name == frozen;
    }
    return PlanMemory(plan).checkpoint_bytes;
  };
  EXPECT_EQ(bytes("{compute: fp32}", "", ""), 0);
  EXPECT_EQ(bytes("{compute: fp32}", "", "/runs/a"), platform::kFilePartBytes);
  EXPECT_EQ(bytes("{compute: fp32}", "layers.0", "/runs/a"), platform::kFilePartBytes) << "of the same type";
  EXPECT_EQ(bytes("{compute: bf16}", "", "/runs/a"), platform::kFilePartBytes);
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 2}", "{compute: bf16}"));
  EXPECT_EQ(bytes("{compute: bf16}", "embedding", "/runs/a"),
            platform::kFilePartBytes + 4 * fsdp::HeldRange(plan.layouts[0][0], MeshOf(plan, 0, 0)).size());
}

TEST(MemoryPlanTest, OutsideCountsTheCommunicatorsOfSeveralRanks) {
  schedules::DeviceProfile profile;
  const JobPlan two = MakeJobPlan(TestJob("{ranks: 2}"));
  EXPECT_EQ(OutsideBytes(two, profile), 0) << "the profile does not know";
  profile.context_bytes = 1000;
  profile.communicator_bytes = 7;
  EXPECT_EQ(OutsideBytes(two, profile), 1000 + 3 * 7);
  EXPECT_EQ(OutsideBytes(MakeJobPlan(TestJob("{ranks: 1}")), profile), 1000);
  // Each replica is one rank, which gathers nothing and exchanges nothing within it.
  EXPECT_EQ(OutsideBytes(MakeJobPlan(TestJob("{ranks: 2, fsdp: {strategy: hsdp}}")), profile), 1000 + 2 * 7);
}

TEST(MemoryPlanTest, GraphsTakeTheDriversPiecesPerPass) {
  v1::JobSpec spec = TestJob("{ranks: 1}");
  schedules::DeviceProfile profile;
  profile.context_bytes = 1000;
  profile.graph_pass_bytes = 1 << 20;
  EXPECT_EQ(OutsideBytes(MakeJobPlan(spec), profile), 1000) << "no graphs";
  spec.mutable_graphs()->set_scope("attention");
  const JobPlan plan = MakeJobPlan(spec);
  const int passes = schedules::CountPassesOfGraphs(plan.stage.train);
  EXPECT_GE(passes, 4 * 3);
  const int64_t bytes = GraphBytes(plan, profile);
  EXPECT_EQ(bytes, (passes + passes % 2) * (int64_t{1} << 20));
  EXPECT_EQ(OutsideBytes(plan, profile), 1000 + bytes);
  profile.graph_pass_bytes = 0;
  EXPECT_EQ(GraphBytes(plan, profile), 0) << "the profile does not know";
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

TEST(MemoryPlanTest, FourFp32LlamaLayersFitIn25GiB) {
  const MemoryPlan memory = PlanMemory(MakeJobPlan(Llama(4, 2, 4096, 1)));
  EXPECT_LE(static_cast<double>(memory.arena_bytes) / kGibibyte, 25);
}

TEST(MemoryPlanTest, GpuPlanHasTheScratchOfItsKernels) {
  v1::JobSpec job = Llama(4, 2, 4096, 1);
  job.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BF16);
  job.mutable_precision()->set_transport(v1::COMPUTE_TYPE_BF16);
  const auto scratch_of = [&](v1::Device device) {
    job.mutable_resources()->set_device(device);
    int64_t most = 0;
    for (const schedules::Node& node : MakeJobPlan(job).outline.nodes) {
      if (node.kind == "attention") {
        most = std::max(most, node.backward_input.scratch.bound);
      }
    }
    return most;
  };
  // The repeatable backward of attention keeps a GiB of gradients of scores; a processor's kernels do not.
  EXPECT_GT(scratch_of(v1::DEVICE_CUDA), int64_t{1} << 30);
  EXPECT_LT(scratch_of(v1::DEVICE_CPU), int64_t{1} << 29);
  EXPECT_EQ(scratch_of(v1::DEVICE_AUTO), scratch_of(v1::DEVICE_CPU));
}

TEST(MemoryPlanTest, LlamaLocalsTakeLittleMoreThanTheirBudget) {
  for (const int ranks : {8, 512}) {
    const JobPlan plan = MakeJobPlan(Llama(32, ranks, 8192, 4));
    const MemoryPlan memory = PlanMemory(plan);
    const int64_t locals = memory.arena_bytes - memory.persistent_bytes;
    EXPECT_LE(static_cast<double>(locals), 1.05 * static_cast<double>(memory.budget_bytes)) << ranks;
    EXPECT_LE(schedules::MostBytesAlive(plan.stage.train), memory.budget_bytes) << ranks;
  }
}

TEST(MemoryPlanTest, LlamaMemoryWaitsCostHalfPercentAtMost) {
  for (const int ranks : {8, 512}) {
    const JobPlan plan = MakeJobPlan(Llama(32, ranks, 8192, 4));
    const Prediction prediction = *Predict(plan, *schedules::PresetProfile("h200"));
    EXPECT_GT(prediction.memory_waits.count, 0);
    EXPECT_LE(static_cast<double>(prediction.memory_waits.cost_ns),
              0.005 * static_cast<double>(prediction.step_ns));
  }
}

// Qwen3-30B-A3B, all of it and with fewer layers, on eight ranks that share the experts of each.
TEST(MemoryPlanTest, OverlapOfSparseLayersIsWithinItsBound) {
  for (const int layers : {1, 4, 7, 48}) {
    for (const char* delays : {"false", "true"}) {
      SCOPED_TRACE(absl::StrCat(layers, " layers, delayed weight gradients ", delays));
      const jobspec::ReadResult read = jobspec::ReadText(
          absl::StrCat(
              "model: {model_type: qwen3_moe, hidden_size: 2048, intermediate_size: 6144, "
              "num_attention_heads: 32, num_key_value_heads: 4, head_dim: 128, vocab_size: 151936, "
              "num_hidden_layers: ",
              layers,
              ", moe: {num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768}}\n"
              "data: {train: /data}\n"
              "training: {steps: 10, sequence_length: 4096, micro_batch_size: 1, global_batch_size: 32}\n"
              "parallelism: {ranks: 8, expert: 8, schedule: overlap, overlap: {delay_weight_gradients: ",
              delays, "}}\nprecision: {compute: bf16}\nresources: {device: cpu}\n"),
          "job.yaml");
      ASSERT_EQ(jobspec::ToText(jobspec::Validate(read.spec)), "");
      const JobPlan plan = MakeJobPlan(jobspec::Resolve(read.spec));
      const int64_t locals = plan.stage.arena_bytes - plan.stage.persistent_bytes;
      EXPECT_LE(locals, schedules::OverlapBound(plan.outline));
      RecordProperty(absl::StrCat("locals_", layers, delays), absl::StrCat(locals));
      RecordProperty(absl::StrCat("bound_", layers, delays),
                     absl::StrCat(schedules::OverlapBound(plan.outline)));
    }
  }
}

}  // namespace
}  // namespace tandem::plan
