// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"
#include "plan/advice.h"
#include "plan/prediction_text.h"
#include "plan/quantity_text.h"
#include "schedules/program/text.h"
#include "schedules/simulate/device_profile.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using schedules::DeviceProfile;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Fast enough that nothing but compute shows.
DeviceProfile FastLink() {
  return {.name = "fast",
          .compute = {{"fp32", {.flops_per_second = 1e9, .peak_flops_per_second = 2e9}}},
          .memory_bytes_per_second = 1e15,
          .link = {.bytes_per_second = 1e15}};
}

DeviceProfile SlowLink() {
  DeviceProfile profile = FastLink();
  profile.name = "slow";
  profile.link.bytes_per_second = 1e6;
  return profile;
}

std::string AdviceText(const v1::JobSpec& job, const DeviceProfile& profile) {
  const JobPlan plan = MakeJobPlan(job);
  std::string text;
  for (const std::string& sentence : Advise(job, plan, *Predict(plan, profile), profile).sentences) {
    text += sentence + "\n";
  }
  return text;
}

// Four ranks share the experts of three layers, on GPUs.
v1::JobSpec SparseJob(const std::string& schedule, const std::string& chunks) {
  const jobspec::ReadResult read = jobspec::ReadText(
      absl::StrCat(
          "model: {model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, "
          "vocab_size: 256, num_hidden_layers: 3, moe: {num_experts: 8, num_experts_per_tok: 2}}\n"
          "data: {train: /data}\n"
          "training: {steps: 10, sequence_length: 64, micro_batch_size: 1, global_batch_size: 32}\n"
          "parallelism: {ranks: 4, expert: 4, schedule: ",
          schedule, ", dispatch: {chunks: ", chunks, "}}\nresources: {device: cuda}\n"),
      "job.yaml");
  EXPECT_EQ(jobspec::ToText(jobspec::Validate(read.spec)), "");
  return jobspec::Resolve(read.spec);
}

// Of GPUs, whose host must know how much each rank sends to each before it issues that.
TEST(PredictionTest, AnOverlapHasComputeQueuedWhileTheHostWaitsForHowManyRowsTravel) {
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

TEST(PredictionTest, ExposedTimeIsSaidByStreamAndTheScheduleThatHidesIt) {
  v1::JobSpec job = SparseJob("sequential", "fixed");
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  const JobPlan plan = MakeJobPlan(job);
  const Prediction prediction = *Predict(plan, profile);
  EXPECT_THAT(PredictionToText(plan, prediction, profile),
              ContainsRegex("exposed communication .*: .*dispatch [0-9.]+ ms"));
  EXPECT_GT(PredictionToJson(plan, prediction, profile)["exposed_by_stream"]["dispatch"], 0);
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("parallelism.schedule overlap instead of sequential( with "
                            "parallelism.overlap.delay_weight_gradients true)? saves"));
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("compute waits .*[0-9] ms for exchanges of the forward"));
  EXPECT_THAT(AdviceText(SparseJob("overlap", "fixed"), profile), Not(HasSubstr("instead of sequential")));
}

// 8 replicas of 8 ranks: with 8 GPUs a machine, each rank of one is on another.
TEST(PredictionTest, TheRanksThatReduceBetweenReplicasAreOnOtherMachines) {
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

TEST(PredictionTest, WhereOnlyProductsTakeTimeTheStepIsTheirs) {
  const JobPlan plan = MakeJobPlan(TestJob());
  const Prediction prediction = *Predict(plan, FastLink());
  double flops = 0;
  for (const schedules::Node& node : plan.outline.nodes) {
    flops += node.forward.flops + node.backward.flops;
  }
  const double seconds = static_cast<double>(prediction.step_ns) * 1e-9;
  EXPECT_NEAR(seconds, 3 * flops / 1e9, 1e-6) << "three microbatches";
  EXPECT_NEAR(prediction.tokens_per_second, 768 / seconds, 1e-3);
  EXPECT_NEAR(prediction.model_flops_utilization,
              model::FlopsPerToken(plan.model, 64) * 768 / 2 / seconds / 2e9, 1e-9);
  EXPECT_LT(prediction.exposed_ns, 1000);
  EXPECT_FALSE(prediction.critical_path.empty());
}

TEST(PredictionTest, TheMemoryInUseStaysBelowTheArenaAndTheDifferenceIsNamed) {
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

TEST(PredictionTest, MemoryWaitsCostTheDifferenceToAStepWithoutThem) {
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

TEST(PredictionTest, WhatTheArenaDoesNotHoldCountsAgainstTheDevice) {
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

TEST(PredictionTest, AUnitThatComputesInAnotherTypeTakesThatTypesTime) {
  DeviceProfile profile = FastLink();
  profile.compute["bf16"].flops_per_second = 1e10;
  const auto head = [&](const char* precision) {
    const JobPlan plan = MakeJobPlan(TestJob("{ranks: 2}", precision));
    const Prediction prediction = *Predict(plan, profile);
    const std::vector<schedules::Instruction>& instructions = plan.stage.train.instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (schedules::ToText(instructions[i], plan.outline) == "forward head mb 0") {
        const schedules::InstructionTime& time = prediction.simulation.timeline.instructions[i];
        return static_cast<double>(time.end_ns - time.start_ns);
      }
    }
    throw std::logic_error("no forward of the head");
  };
  EXPECT_NEAR(head("{compute: bf16, head: {compute: fp32}}") / head("{compute: bf16}"), 10, 0.01);
}

// Products of experts are not as fast as large ones, nor those of padded rows as those of others.
TEST(PredictionTest, ExpertsTakeTheTimeOfTheirKindOfProducts) {
  DeviceProfile profile = FastLink();
  const auto seconds = [&](const v1::JobSpec& job) {
    const JobPlan plan = MakeJobPlan(job);
    const Prediction prediction = *Predict(plan, profile);
    const std::vector<schedules::Instruction>& instructions = plan.stage.train.instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (schedules::ToText(instructions[i], plan.outline) == "forward layers.0.experts mb 0") {
        const schedules::InstructionTime& time = prediction.simulation.timeline.instructions[i];
        return static_cast<double>(time.end_ns - time.start_ns) * 1e-9;
      }
    }
    throw std::logic_error("no forward of experts");
  };
  const v1::JobSpec job = SparseJob("sequential", "fixed");
  v1::JobSpec padded = job;
  padded.mutable_model()->mutable_moe()->set_capacity_factor(1);
  padded.mutable_model()->mutable_moe()->set_pad_to_capacity(true);
  padded.mutable_parallelism()->mutable_dispatch()->clear_rows_at_a_time();
  const double all_alike = seconds(job);
  EXPECT_NEAR(seconds(padded) / all_alike, 1, 1e-3) << "as many rows";
  profile.compute["fp32 grouped"].flops_per_second = 5e8;
  profile.compute["fp32 padded"].flops_per_second = 2.5e8;
  EXPECT_NEAR(seconds(job) / all_alike, 2, 1e-3);
  EXPECT_NEAR(seconds(padded) / all_alike, 4, 1e-3);
}

TEST(PredictionTest, TextAndJsonSayTheSameAndNameTheProfile) {
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

TEST(PredictionTest, WhatTheCriticalPathLeavesOfTheStepIsSaid) {
  const JobPlan plan = MakeJobPlan(TestJob());
  DeviceProfile profile = FastLink();
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile), Not(HasSubstr("gaps between")));
  profile.gap_seconds = 1e-3;
  EXPECT_THAT(PredictionToText(plan, *Predict(plan, profile), profile),
              ContainsRegex("critical path +compute .*, gaps between them [0-9.]+ ms \\([0-9.]+ %\\)\n"));
}

// The spec with that field as a spec would have it.
void Apply(const FieldChange& change, v1::JobSpec& job) {
  google::protobuf::Message* message = &job;
  const std::vector<std::string> keys = absl::StrSplit(change.path, '.');
  for (size_t i = 0; i < keys.size(); ++i) {
    const google::protobuf::FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(keys[i]);
    ASSERT_NE(field, nullptr) << change.path;
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (i + 1 < keys.size()) {
      message = reflection.MutableMessage(message, field);
    } else if (change.to.empty()) {
      reflection.ClearField(message, field);
    } else if (field->enum_type() != nullptr) {
      const auto* value = jobspec::EnumValueOf(*field->enum_type(), change.to);
      ASSERT_NE(value, nullptr) << change.path << ": " << change.to;
      reflection.SetEnum(message, field, value);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
      ASSERT_TRUE(change.to == "true" || change.to == "false") << change.path;
      reflection.SetBool(message, field, change.to == "true");
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      reflection.SetString(message, field, change.to);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32) {
      reflection.SetInt32(message, field, std::stoi(change.to));
    } else {
      reflection.SetInt64(message, field, std::stol(change.to));
    }
  }
}

TEST(AdviceTest, WhatItTriesOfASparseJobIsASpecThatCanBeWritten) {
  std::set<std::string> tried;
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  profile.memory_bytes = 1 << 20;  // nothing fits, so that everything is tried
  for (const char* schedule : {"sequential", "overlap", "overlap, overlap: {delay_weight_gradients: true}"}) {
    for (const char* chunks : {"fixed", "fixed, separate_weight_gradients: true"}) {
      if (schedule[0] == 'o' && absl::StrContains(chunks, "separate")) {
        continue;
      }
      const v1::JobSpec job = SparseJob(schedule, chunks);
      const JobPlan plan = MakeJobPlan(job);
      for (const Trial& trial : Advise(job, plan, *Predict(plan, profile), profile).trials) {
        SCOPED_TRACE(absl::StrCat(schedule, ", ", chunks, ": ", trial.field.path, " ", trial.field.to));
        v1::JobSpec changed = job;
        Apply(trial.field, changed);
        for (const FieldChange& field : trial.beside) {
          Apply(field, changed);
        }
        EXPECT_EQ(jobspec::ToText(jobspec::Validate(changed)), "");
        EXPECT_EQ(Predict(MakeJobPlan(jobspec::Resolve(changed)), profile)->step_ns, trial.step_ns);
        tried.insert(absl::StrCat(trial.field.path, " ", trial.field.to));
      }
    }
  }
  for (const char* path : {"parallelism.schedule sequential", "parallelism.schedule overlap",
                           "parallelism.overlap.delay_weight_gradients true",
                           "parallelism.dispatch.separate_weight_gradients true",
                           "parallelism.dispatch.separate_weight_gradients ", "training.recompute layer"}) {
    EXPECT_TRUE(tried.contains(path)) << path;
  }
}

// Weight gradients on a stream of their own are computed, not communicated.
TEST(AdviceTest, WhatComputeWaitsForIsSaidByWhatItIs) {
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  const v1::JobSpec job = SparseJob("sequential", "fixed, separate_weight_gradients: true");
  const std::string text = AdviceText(job, profile);
  EXPECT_THAT(text, Not(HasSubstr("for backward-weight")));
  EXPECT_THAT(text, ContainsRegex("for exchanges of the backward"));
}

// Of a job that is too large a change that is no larger is no step back.
TEST(AdviceTest, AJobThatDoesNotFitIsToldOfTheScheduleThatIsFasterAndNoLarger) {
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  profile.memory_bytes = 1000;
  const v1::JobSpec job = SparseJob("sequential", "fixed");
  const JobPlan plan = MakeJobPlan(job);
  const Prediction prediction = *Predict(plan, profile);
  const Advice advice = Advise(job, plan, prediction, profile);
  const auto trial = [&](const std::string& path) {
    return *std::find_if(advice.trials.begin(), advice.trials.end(),
                         [&](const Trial& candidate) { return candidate.field.path == path; });
  };
  const Trial separate = trial("parallelism.dispatch.separate_weight_gradients");
  const Trial overlap = trial("parallelism.schedule");
  ASSERT_LE(separate.device_bytes, prediction.device_bytes()) << "the job shows nothing";
  ASSERT_GT(overlap.device_bytes, prediction.device_bytes()) << "the job shows nothing";
  ASSERT_LT(overlap.step_ns, separate.step_ns) << "the job shows nothing";
  EXPECT_THAT(advice.sentences.back(),
              HasSubstr("Tried: parallelism.dispatch.separate_weight_gradients true instead of false saves"));
}

// What counts by microbatches is said, since another size of them then changes the numbers.
TEST(AdviceTest, AnotherMicrobatchOfASparseJobIsSaidToChangeItsNumbers) {
  v1::JobSpec job = SparseJob("overlap", "fixed");
  DeviceProfile profile = FastLink();
  profile.overhead_seconds = 1e-3;  // fewer and larger are better
  EXPECT_THAT(AdviceText(job, profile), ContainsRegex("instead of 1 \\(same global batch\\) saves"));
  job.mutable_model()->mutable_moe()->set_capacity_factor(1.5);
  job.mutable_model()->mutable_moe()->set_router_aux_loss_coef(0.1);
  EXPECT_THAT(AdviceText(job, profile),
              HasSubstr("(same global batch, other numbers: experts' capacity and the routers' loss are of a "
                        "microbatch) saves"));
}

TEST(AdviceTest, AFastLinkLeavesTheStepComputeBound) {
  const std::string text = AdviceText(TestJob(), FastLink());
  EXPECT_THAT(text, HasSubstr("Compute-bound: compute works 100 % of the step (most in backward "));
  EXPECT_THAT(text, Not(HasSubstr("The link limits")));
}

TEST(AdviceTest, ASlowLinkIsNamedWithWhatWasTried) {
  const std::string text = AdviceText(TestJob(), SlowLink());
  EXPECT_THAT(text,
              ContainsRegex("^Communication: [0-9.]+ m?s of the step \\([0-9]+ %\\) is exposed; compute "
                            "waits [0-9.]+ m?s for gathers, "));
  EXPECT_THAT(text,
              ContainsRegex("The link limits: the (gather|reduce) stream needs [0-9.]+ m?s and compute "));
  EXPECT_THAT(text, Not(HasSubstr("Compute-bound")));
}

TEST(AdviceTest, PrefetchIsRecommendedWithWhatItSavesAndCosts) {
  const v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  const JobPlan plan = MakeJobPlan(job);
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;  // a layer's gather takes a part of its compute
  const Prediction prediction = *Predict(plan, profile);
  const Advice advice = Advise(job, plan, prediction, profile);
  const Trial* trial = nullptr;
  for (const Trial& candidate : advice.trials) {
    if (candidate.field.path == "parallelism.fsdp.prefetch" &&
        (trial == nullptr || candidate.step_ns < trial->step_ns)) {
      trial = &candidate;
    }
  }
  ASSERT_NE(trial, nullptr);
  v1::JobSpec changed = job;
  changed.mutable_parallelism()->mutable_fsdp()->set_prefetch(std::stoi(trial->field.to));
  const Prediction again = *Predict(MakeJobPlan(changed), profile);
  EXPECT_EQ(trial->step_ns, again.step_ns) << "a trial is that job, planned";
  EXPECT_EQ(trial->arena_bytes, again.memory.arena_bytes);
  EXPECT_EQ(trial->device_bytes, again.device_bytes());
  ASSERT_EQ(advice.sentences.size(), 2u);
  EXPECT_THAT(advice.sentences[1],
              HasSubstr("parallelism.fsdp.prefetch " + trial->field.to + " instead of 0 saves " +
                        DurationText(prediction.step_ns - trial->step_ns)));
}

// The job, planned again with what the advice tried. One plan serves all profiles.
const JobPlan& PlanWith(const v1::JobSpec& job, const Trial& trial) {
  static std::map<std::tuple<int, std::string, std::string>, JobPlan> plans;
  const auto key = std::make_tuple(job.parallelism().fsdp().prefetch(), trial.field.path, trial.field.to);
  if (plans.count(key) == 0) {
    v1::JobSpec changed = job;
    if (trial.field.path == "parallelism.fsdp.prefetch") {
      changed.mutable_parallelism()->mutable_fsdp()->set_prefetch(std::stoi(trial.field.to));
    } else if (trial.field.path == "training.recompute") {
      changed.mutable_training()->set_recompute(trial.field.to);
    } else {
      changed.mutable_training()->set_micro_batch_size(std::stoi(trial.field.to));
    }
    plans[key] = MakeJobPlan(changed);
  }
  return plans.at(key);
}

TEST(AdviceTest, WhatItSaysOfAChangeIsWhatTheChangedJobDoes) {
  int recommended = 0;
  int nothing = 0;
  for (const char* prefetch : {"0", "1", "2"}) {
    const v1::JobSpec job = TestJob(absl::StrCat("{ranks: 2, fsdp: {prefetch: ", prefetch, "}}"));
    const JobPlan plan = MakeJobPlan(job);
    for (const double link : {1e6, 3e7, 1e8, 1e15}) {
      for (const double overhead : {0.0, 1e-3}) {
        for (const int64_t memory : {int64_t{0}, int64_t{1} << 22, int64_t{1} << 60}) {
          DeviceProfile profile = FastLink();
          profile.link.bytes_per_second = link;
          profile.overhead_seconds = overhead;
          profile.memory_bytes = memory;
          const Prediction prediction = *Predict(plan, profile);
          const Advice advice = Advise(job, plan, prediction, profile);
          const std::string text = absl::StrJoin(advice.sentences, "\n");
          const std::string& tried = advice.sentences.back();  // what would fit is in the first
          bool helps = false;
          bool fits = false;
          for (const Trial& trial : advice.trials) {
            EXPECT_EQ(trial.step_ns, Predict(PlanWith(job, trial), profile)->step_ns)
                << trial.field.path << " " << trial.field.to;
            const int64_t saved = prediction.step_ns - trial.step_ns;
            const std::string change =
                absl::StrCat(trial.field.path, " ", trial.field.to, " instead of ", trial.field.from);
            if (absl::StrContains(tried, change) && absl::StrContains(tried, " saves ")) {
              ++recommended;
              EXPECT_THAT(text, HasSubstr(absl::StrCat(" saves ", DurationText(saved), " (")));
              EXPECT_GE(saved, prediction.step_ns / 100);
            }
            if (absl::StrContains(tried, change) && absl::StrContains(tried, "no longer")) {
              EXPECT_LE(trial.step_ns, prediction.step_ns);
            }
            const bool worthwhile = saved >= 0.01 * static_cast<double>(prediction.step_ns);
            helps |= worthwhile;
            fits |= worthwhile && (memory == 0 || trial.arena_bytes <= memory);
          }
          if (absl::StrContains(text, "No other prefetch or micro_batch_size that was tried saves 1 %")) {
            ++nothing;
            EXPECT_FALSE(helps) << text;
          }
          EXPECT_EQ(absl::StrContains(text, "Tried: ") && absl::StrContains(text, " saves "), fits) << text;
          if (absl::StrContains(text, "only a faster link or more work a gather helps")) {
            EXPECT_FALSE(fits) << text;
          }
          if (absl::StrContains(text, "The link limits")) {
            profile.link.bytes_per_second *= 2;
            EXPECT_LT(Predict(plan, profile)->step_ns, prediction.step_ns);
          }
        }
      }
    }
  }
  EXPECT_GT(recommended, 10);
  EXPECT_GT(nothing, 0);
}

TEST(PredictionTest, RatesOfNoDeviceAreRefusedInOneLine) {
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

TEST(AdviceTest, MemoryThatDoesNotSufficeIsSaidFirst) {
  DeviceProfile profile = FastLink();
  const JobPlan plan = MakeJobPlan(TestJob());
  profile.memory_bytes = PlanMemory(plan).arena_bytes;
  EXPECT_THAT(AdviceText(TestJob(), profile), Not(HasSubstr("does not fit")));
  --profile.memory_bytes;
  const std::string text = AdviceText(TestJob(), profile);
  EXPECT_THAT(text, ContainsRegex("^It does not fit: a rank needs [0-9.]+ MiB and fast has [0-9.]+ MiB; "));
  EXPECT_THAT(text, ContainsRegex(" instead of [0-9]( \\(same global batch\\))? needs [0-9.]+ MiB and fits"));
  profile.memory_bytes = 1000;
  EXPECT_THAT(
      AdviceText(TestJob(), profile),
      ContainsRegex(" instead of .* needs [0-9.]+ MiB; beside it use more ranks, or shorter sequences"));
}

// Nothing is gathered ahead, and a sequence is the least that a rank works on.
TEST(AdviceTest, RecomputationIsProposedWhereItAloneMakesAJobFit) {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  job.mutable_training()->set_micro_batch_size(1);
  v1::JobSpec recomputing = job;
  recomputing.mutable_training()->set_recompute("layer");
  DeviceProfile profile = FastLink();
  profile.memory_bytes = PlanMemory(MakeJobPlan(recomputing)).arena_bytes;
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("^It does not fit: .*; training.recompute [a-z,]+ instead of off needs "
                            "[0-9.]+ MiB and fits\\."));
  EXPECT_THAT(AdviceText(recomputing, profile), Not(HasSubstr("does not fit")));
}

TEST(AdviceTest, MoreRecomputationIsProposedToAJobThatRecomputes) {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_recompute("attention");
  v1::JobSpec recomputing = job;
  recomputing.mutable_training()->set_recompute("layer,head");
  DeviceProfile profile = FastLink();
  profile.memory_bytes = PlanMemory(MakeJobPlan(recomputing)).arena_bytes;
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("^It does not fit: .*; training.recompute [a-z,]+ instead of attention needs "
                            "[0-9.]+ MiB and fits\\."));
}

TEST(AdviceTest, ShardingMoreIsProposedWhereItMakesAJobFit) {
  v1::JobSpec job = TestJob("{ranks: 6, fsdp: {strategy: replicate, prefetch: 0}}");
  v1::JobSpec sharded = job;
  sharded.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_ZERO3);
  DeviceProfile profile = FastLink();
  profile.memory_bytes = PlanMemory(MakeJobPlan(sharded)).arena_bytes;
  EXPECT_THAT(AdviceText(job, profile),
              HasSubstr("parallelism.fsdp.strategy zero3 instead of replicate needs "));
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

}  // namespace
}  // namespace tandem::plan
