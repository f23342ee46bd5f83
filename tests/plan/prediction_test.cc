// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/parameter_and_flop_counts.h"
#include "plan/prediction_text.h"
#include "plan/quantity_text.h"
#include "plan/text.h"
#include "schedules/program/text.h"
#include "schedules/simulate/device_profile.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using schedules::DeviceProfile;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Of GPUs, whose host must know how much each rank sends to each before it issues that.
TEST(PredictionTest, OverlapQueuesComputeWhileTheHostAwaitsRows) {
  for (const char* schedule : {"sequential", "overlap"}) {
    const JobPlan plan = MakeJobPlan(SparseJob(schedule, "exact"));
    DeviceProfile profile = FastLink();
    profile.link.latency_seconds = 1e-4;
    const Prediction prediction = *Predict(plan, profile);
    const schedules::HostWaits& waits = prediction.host_waits;
    EXPECT_EQ(waits.count, 3 * 8);
    const bool overlaps = schedule[0] == 'o';
    // All but those of the first microbatch.
    EXPECT_GE(static_cast<double>(waits.covered_ns),
              overlaps ? 0.8 * static_cast<double>(waits.waited_ns) : 0);
    EXPECT_LE(static_cast<double>(waits.covered_ns),
              static_cast<double>(waits.waited_ns) * (overlaps ? 1 : 0.2));
    EXPECT_THAT(PredictionToText(plan, prediction, profile), HasSubstr("24 for how many rows travel"));
  }
}

TEST(PredictionTest, ExposedTimeIsGivenByStream) {
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  const JobPlan plan = MakeJobPlan(SparseJob("sequential", "fixed"));
  const Prediction prediction = *Predict(plan, profile);
  EXPECT_THAT(PredictionToText(plan, prediction, profile),
              ContainsRegex("exposed communication .*: .*dispatch [0-9.]+ ms"));
  EXPECT_GT(PredictionToJson(plan, prediction, profile)["exposed_by_stream"]["dispatch"], 0);
}

TEST(PredictionTest, OfALoneRankNothingIsCalledCommunication) {
  const DeviceProfile profile = *schedules::PresetProfile("h100");
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 1}"));
  const std::string text = PlanToText(plan, {}) + PredictionToText(plan, *Predict(plan, profile), profile);
  EXPECT_THAT(text, testing::Not(HasSubstr("communication")));
  EXPECT_THAT(text, HasSubstr("exposed additions"));
}

// 8 replicas of 8 ranks: with 8 GPUs a machine, each rank of one is on another.
TEST(PredictionTest, ReplicasReduceBetweenMachines) {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {strategy: hsdp}}");
  job.mutable_training()->set_global_batch_size(128);
  job.mutable_parallelism()->set_ranks(64);
  job.mutable_parallelism()->set_replicas(8);
  const JobPlan plan = MakeJobPlan(job);
  const schedules::Workload workload = WorkloadOf(plan);
  using Shape = schedules::GroupShape;
  EXPECT_EQ(workload.groups.at("intra_dp_cp"), (Shape{.ranks = 8, .stride = 1}));
  EXPECT_EQ(workload.groups.at("inter_dp_cp"), (Shape{.ranks = 8, .stride = 8}));
  EXPECT_EQ(workload.groups.at("world"), (Shape{.ranks = 64, .stride = 1}));
  EXPECT_EQ(workload.strategy.name, "hsdp");

  DeviceProfile profile = FastLink();
  profile.link.max_ranks = 8;
  profile.network.bytes_per_second = 8e9;
  const schedules::CostModel costs(plan.outline, plan.stage.train, workload, profile);
  int reductions = 0;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.opcode == schedules::Opcode::kReduceOuter) {
      const schedules::Work work = schedules::WorkOf(plan.outline, plan.stage.train, instruction, workload);
      EXPECT_GE(costs.Of(instruction).seconds, work.link_bytes * 7 / 8 / 1e9) << "an adapter a rank";
      ++reductions;
    }
  }
  EXPECT_GT(reductions, 0);
}

TEST(PredictionTest, StepOfOnlyProductsTakesTheirTime) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const Prediction prediction = *Predict(plan, FastLink());
  double flops = 0;
  for (const schedules::Node& node : plan.outline.nodes) {
    flops += node.forward.flops + node.backward_input.flops + node.backward_weight.flops;
  }
  const double seconds = static_cast<double>(prediction.step_ns) * 1e-9;
  EXPECT_NEAR(seconds, 3 * flops / 1e9, 1e-6) << "three microbatches";
  EXPECT_NEAR(prediction.tokens_per_second, 768 / seconds, 1e-3);
  EXPECT_NEAR(prediction.model_flops_utilization,
              model::FlopsPerToken(plan.model, 64) * 768 / 2 / seconds / 2e9, 1e-9);
  EXPECT_LT(prediction.exposed_ns, 1000);
  EXPECT_FALSE(prediction.critical_path.empty());
}

TEST(PredictionTest, ArenaCoversTheMemoryInUse) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const Prediction prediction = *Predict(plan, SlowLink());
  EXPECT_EQ(prediction.memory.arena_bytes, PlanMemory(plan).arena_bytes);
  const nlohmann::json curve = PredictionToJson(plan, prediction, SlowLink())["memory_curve"];
  ASSERT_EQ(curve.size(), prediction.memory_curve.points.size());
  int64_t highest = 0;
  for (const nlohmann::json& point : curve) {
    int64_t locals = 0;
    for (const nlohmann::json& bytes : point["locals"]) {
      locals += bytes.get<int64_t>();
    }
    EXPECT_EQ(point["in_use"], point["persistent"].get<int64_t>() + locals);
    highest = std::max(highest, point["in_use"].get<int64_t>());
  }
  EXPECT_EQ(highest,
            schedules::Total(prediction.memory_curve.persistent) + prediction.memory_curve.peak_bytes);
  EXPECT_LE(prediction.memory_curve.peak_bytes, prediction.memory.alive_bytes)
      << "alive is an upper bound of in use";
  EXPECT_THAT(
      PredictionToText(plan, prediction, SlowLink()),
      ContainsRegex("arena +[0-9.]+ MiB: [0-9.]+ MiB in use at most, [0-9.]+ [KM]iB kept for what may "
                    "overlap, [0-9.]+ [KM]iB alignment and gaps\n"));
}

TEST(PredictionTest, MemoryWaitsCostWhatTheyDelayTheStep) {
  JobPlan plan = MakeJobPlan(TestJob());
  schedules::Program& train = plan.stage.train;
  for (schedules::Instruction& instruction : train.instructions) {
    for (schedules::Wait& wait : instruction.waits) {
      wait.frees = 0;
    }
  }
  const Prediction without = *Predict(plan, SlowLink());
  EXPECT_EQ(without.memory_waits.count, 0);
  EXPECT_THAT(PredictionToText(plan, without, SlowLink()), ContainsRegex("memory waits +none: "));
  // The first gather waits, for its memory, until the last optimizer step has ended.
  const auto last_optimizer = std::find_if(
      train.instructions.rbegin(), train.instructions.rend(),
      [](const schedules::Instruction& i) { return i.opcode == schedules::Opcode::kOptimizerStep; });
  const int waited = static_cast<int>(train.instructions.rend() - last_optimizer) - 1;
  const auto gather =
      std::find_if(train.instructions.begin() + waited, train.instructions.end(),
                   [](const schedules::Instruction& i) { return i.opcode == schedules::Opcode::kUnshard; });
  ASSERT_NE(gather, train.instructions.end());
  gather->waits.push_back({.instruction = waited, .frees = 4096});
  DeviceProfile profile = SlowLink();
  profile.memory_bytes_per_second = 1e7;  // so that optimizer steps take time
  const Prediction prediction = *Predict(plan, profile);
  EXPECT_EQ(prediction.memory_waits.count, 1);
  EXPECT_EQ(prediction.memory_waits.freed_bytes, 4096);
  EXPECT_GT(prediction.memory_waits.cost_ns, 0);
  gather->waits.pop_back();
  EXPECT_EQ(prediction.step_ns - prediction.memory_waits.cost_ns, Predict(plan, profile)->step_ns);
}

TEST(PredictionTest, SavingStepTakesAsLongAsItsCopies) {
  v1::JobSpec spec = TestJob();
  EXPECT_EQ(Predict(MakeJobPlan(spec), FastLink())->saving_step_ns, 0);
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  const JobPlan plan = MakeJobPlan(spec);
  DeviceProfile profile = FastLink();
  const Prediction fast = *Predict(plan, profile);
  EXPECT_GE(fast.saving_step_ns, fast.step_ns);
  profile.host_bytes_per_second = 1e6;
  const Prediction slow = *Predict(plan, profile);
  EXPECT_EQ(slow.step_ns, fast.step_ns);
  EXPECT_GE(slow.saving_step_ns, slow.memory.saved_bytes * 900);  // a byte takes 1000
  EXPECT_THAT(PredictionToText(plan, slow, profile), HasSubstr("step that saves"));
}

TEST(PredictionTest, WhatSavesTakeOfAMachineIsSaid) {
  v1::JobSpec spec = TestJob("{ranks: 2}");
  const DeviceProfile profile = FastLink();
  const JobPlan without = MakeJobPlan(spec);
  EXPECT_THAT(PredictionToText(without, *Predict(without, profile), profile),
              Not(HasSubstr("machine memory")));
  EXPECT_TRUE(PredictionToJson(without, *Predict(without, profile), profile)["machine_memory"].is_null());
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  const JobPlan plan = MakeJobPlan(spec);
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile),
              ContainsRegex("machine memory +[0-9.]+ MiB of 2 ranks, [0-9.]+ MiB of it copies to save; with "
                            "less than [0-9.]+ MiB available there, steps stand still while a checkpoint"));
  EXPECT_EQ(PredictionToJson(plan, *Predict(plan, profile), profile)["machine_memory"]["ranks"], 2);
}

TEST(PredictionTest, MemoryOutsideTheArenaCountsAgainstTheDevice) {
  const JobPlan plan = MakeJobPlan(TestJob());
  DeviceProfile profile = FastLink();
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile), Not(HasSubstr("outside")));
  EXPECT_TRUE(PredictionToJson(plan, *Predict(plan, profile), profile)["outside_bytes"].is_null());
  profile.context_bytes = int64_t{1} << 30;
  const Prediction prediction = *Predict(plan, profile);
  EXPECT_EQ(prediction.device_bytes(), prediction.memory.arena_bytes + profile.context_bytes);
  EXPECT_THAT(PredictionToText(plan, prediction, profile),
              HasSubstr("1.00 GiB beside the arena: context, communicators, modules"));
}

TEST(PredictionTest, AProfileWithoutTheComputeTypeIsRefused) {
  const absl::Status status =
      Predict(MakeJobPlan(TestJob("{ranks: 2}", "{compute: fp64}")), FastLink()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "precision.compute: the device profile fast has no rate for fp64; it has fp32; add "
            "compute.fp64.flops_per_second to the profile, or plan with another profile or type");
  EXPECT_THAT(
      std::string(
          Predict(MakeJobPlan(TestJob("{ranks: 2}", "{compute: fp32, head: {compute: bf16}}")), FastLink())
              .status()
              .message()),
      testing::StartsWith("precision.head.compute: the device profile fast has no rate for bf16; it "));
}

// The time of the instruction that prints so, in the train program of that job.
double SecondsOf(const std::string& text, const v1::JobSpec& job, const DeviceProfile& profile) {
  const JobPlan plan = MakeJobPlan(job);
  const Prediction prediction = *Predict(plan, profile);
  const std::vector<schedules::Instruction>& instructions = plan.stage.train.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (schedules::ToText(instructions[i], plan.outline) == text) {
      const schedules::InstructionTime& time = prediction.simulation.timeline.instructions[i];
      return static_cast<double>(time.end_ns - time.start_ns) * 1e-9;
    }
  }
  throw std::logic_error("no instruction " + text);
}

TEST(PredictionTest, UnitOfAnotherTypeTakesThatTypesTime) {
  DeviceProfile profile = FastLink();
  profile.compute["bf16"].flops_per_second = 1e10;
  const auto head = [&](const char* precision) {
    return SecondsOf("forward head mb 0", TestJob("{ranks: 2}", precision), profile);
  };
  EXPECT_NEAR(head("{compute: bf16, head: {compute: fp32}}") / head("{compute: bf16}"), 10, 0.01);
}

// Products of experts are not as fast as large ones.
TEST(PredictionTest, ExpertsTakeTheTimeOfTheirProducts) {
  DeviceProfile profile = FastLink();
  const auto seconds = [&] {
    return SecondsOf("forward layers.0.experts mb 0", SparseJob("sequential", "fixed"), profile);
  };
  const double as_all = seconds();
  profile.compute["fp32 grouped"].flops_per_second = 5e8;
  EXPECT_NEAR(seconds() / as_all, 2, 1e-3);
}

TEST(PredictionTest, TextAndJsonAgreeAndNameTheProfile) {
  const JobPlan plan = MakeJobPlan(TestJob());
  DeviceProfile profile = *schedules::PresetProfile("h100");
  const Prediction prediction = *Predict(plan, profile);
  const std::string text = PredictionToText(plan, prediction, profile);
  EXPECT_THAT(text, ContainsRegex("device profile +h100: H100"));
  EXPECT_THAT(text, ContainsRegex("costs +instructions: [0-9]+ estimated from rates\n"));
  EXPECT_THAT(text, HasSubstr(DurationText(prediction.step_ns)));
  EXPECT_THAT(text, ContainsRegex("device memory +[0-9.]+ [MG]iB of 79.18 GiB"));
  const nlohmann::json json = PredictionToJson(plan, prediction, profile);
  EXPECT_NEAR(json["step_seconds"].get<double>() * 1e9, static_cast<double>(prediction.step_ns), 1);
  EXPECT_EQ(json["timeline"].size(), plan.stage.train.instructions.size());
  EXPECT_EQ(json["critical_path"].size(), prediction.critical_path.size());
  EXPECT_TRUE(json["model_flops_utilization"].is_number());
  profile.compute["fp32"].peak_flops_per_second = 0;
  EXPECT_TRUE(PredictionToJson(plan, *Predict(plan, profile), profile)["model_flops_utilization"].is_null());
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile), Not(HasSubstr("of the peak")));
}

TEST(PredictionTest, TimeOffTheCriticalPathIsSaid) {
  const JobPlan plan = MakeJobPlan(TestJob());
  DeviceProfile profile = FastLink();
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile), Not(HasSubstr("gaps between")));
  profile.gap_seconds = 1e-3;
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile),
              ContainsRegex("critical path +compute .*, gaps between them [0-9.]+ ms \\([0-9.]+ %\\)\n"));
}

TEST(PredictionTest, ImpossibleRatesAreRefusedInOneLine) {
  DeviceProfile profile = FastLink();
  profile.compute["fp32"].flops_per_second = 1e-20;
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_THAT(
      std::string(Predict(plan, profile).status().message()),
      testing::StartsWith("by the device profile fast a step takes more than 70 years; rates are FLOPs "
                          "and bytes a second (fp32: 1e-20, memory: 1e+15, link: 1e+15)"));
  profile.compute["fp32"].flops_per_second = 1e-300;
  EXPECT_FALSE(Predict(plan, profile).ok());
  profile.compute["fp32"].flops_per_second = 1e29;
  profile.memory_bytes_per_second = profile.link.bytes_per_second = 1e29;
  EXPECT_THAT(std::string(Predict(plan, profile).status().message()),
              HasSubstr("a step takes less than a nanosecond"));
}

TEST(QuantityTextTest, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(DurationText(0), "0 ns");
  EXPECT_EQ(DurationText(999), "999 ns");
  EXPECT_EQ(DurationText(999'499), "999 us");
  EXPECT_EQ(DurationText(999'999), "1.00 ms");
  EXPECT_EQ(DurationText(12'345'678), "12.3 ms");
  EXPECT_EQ(DurationText(12'345'678'901'234), "12346 s");
  EXPECT_EQ(ShareText(1, 3), "33 %");
  EXPECT_EQ(ShareText(0.0341, 1), "3.4 %");
  EXPECT_EQ(ShareText(1, 0), "0 %");
}

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

// Of the units of the train program's instructions of that opcode, all weights with their padding, in fp32.
double UnitBytes(const JobPlan& plan, schedules::Opcode opcode) {
  double bytes = 0;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.opcode == opcode) {
      bytes += 4 * static_cast<double>(fsdp::PaddedElements(plan.layouts[instruction.target][0],
                                                            {.inner = plan.topology.world}));
    }
  }
  return bytes;
}

TEST(SentBytesTest, ReplicasSendGradientsAndThenTheirSum) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 2, fsdp: {strategy: replicate}}"));
  const double gradients = UnitBytes(plan, schedules::Opcode::kReduceGradients);
  EXPECT_GT(gradients, 0);
  EXPECT_EQ(SentBytes(plan), (std::map<std::string, double>{{"reduce", gradients / 2 + gradients / 2}}));
}

TEST(SentBytesTest, ShardedRanksSendAShareOfEachCollective) {
  for (const int ranks : {2, 4}) {
    v1::JobSpec job = TestJob("{ranks: 2, fsdp: {strategy: zero3}}");
    job.mutable_parallelism()->set_ranks(ranks);
    job.mutable_training()->set_global_batch_size(6 * ranks);
    const JobPlan plan = MakeJobPlan(job);
    const double others = (ranks - 1) / static_cast<double>(ranks);
    const double gathered = UnitBytes(plan, schedules::Opcode::kUnshard);
    const double reduced = UnitBytes(plan, schedules::Opcode::kReduceGradients);
    EXPECT_GT(gathered, reduced) << "before forward and before backward";
    EXPECT_EQ(SentBytes(plan),
              (std::map<std::string, double>{{"gather", gathered * others}, {"reduce", reduced * others}}));
  }
}

TEST(SentBytesTest, OneRankSendsNothing) {
  v1::JobSpec job = TestJob("{ranks: 1}");
  EXPECT_TRUE(SentBytes(MakeJobPlan(job)).empty());
}

}  // namespace
}  // namespace tandem::plan
