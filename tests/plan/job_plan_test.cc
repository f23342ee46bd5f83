// SPDX-License-Identifier: Apache-2.0
#include "plan/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "jobspec/jobspec.h"
#include "parallel/from_spec.h"
#include "parallel/job_groups.h"
#include "plan/text.h"
#include "schedules/check/check.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using testing::HasSubstr;

TEST(JobPlanTest, PlainStructsHoldWhatTheSpecSays) {
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_EQ(plan.train.name, "small");
  EXPECT_EQ(plan.train.steps, 200);
  EXPECT_EQ(plan.train.seed, 7u);
  EXPECT_EQ(plan.topology.world, 2);
  EXPECT_EQ(plan.train.microbatches_per_rank, 3);
  EXPECT_EQ(plan.train.optimizer.schedule.peak, 1e-3);
  EXPECT_EQ(plan.train.optimizer.schedule.warmup_steps, 20);
  EXPECT_EQ(plan.train.optimizer.schedule.decay, v1::DECAY_COSINE);
  EXPECT_EQ(plan.train.data.train.at(0).path, "/data");
  EXPECT_EQ(plan.batch.sequences, 2);
  EXPECT_EQ(plan.batch.sequence_length, 64);
  EXPECT_EQ(plan.precision.hidden(), model::ComputeType::kFp32);
  EXPECT_EQ(plan.model.head_dim, 16);
  EXPECT_EQ(MakeJobPlan(TestJob("{ranks: 1}", "{compute: fp64}")).precision.hidden(),
            model::ComputeType::kFp64);
}

TEST(JobPlanTest, UnitsLayoutsAndOutlineAgree) {
  const JobPlan plan = MakeJobPlan(TestJob());
  ASSERT_EQ(plan.units.size(), 6u);
  ASSERT_EQ(plan.layouts.size(), 6u);
  ASSERT_EQ(plan.outline.units.size(), 6u);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    EXPECT_EQ(plan.outline.units[unit].name, plan.units[unit].name);
    ASSERT_EQ(plan.outline.units[unit].parts.size(), plan.units[unit].parts.size());
    for (size_t part = 0; part < plan.units[unit].parts.size(); ++part) {
      EXPECT_EQ(plan.outline.units[unit].parts[part].name, plan.units[unit].parts[part].name);
    }
    EXPECT_EQ(plan.outline.units[unit].classes[0].elements, plan.layouts[unit][0].elements);
    EXPECT_EQ(plan.options.units[unit].classes[0].shard_elements,
              fsdp::ShardElements(plan.layouts[unit][0], {.inner = 2}));
    ASSERT_EQ(plan.layouts[unit][0].parameters.size(), plan.units[unit].parameters.size());
    for (size_t i = 0; i < plan.layouts[unit][0].parameters.size(); ++i) {
      EXPECT_EQ(plan.layouts[unit][0].parameters[i].name, plan.units[unit].parameters[i].name);
    }
  }
}

// Of one unit in a program.
int64_t Count(const schedules::Program& program, schedules::Opcode opcode, int unit) {
  return std::count_if(program.instructions.begin(), program.instructions.end(),
                       [&](const schedules::Instruction& instruction) {
                         return instruction.opcode == opcode && instruction.target == unit;
                       });
}

TEST(JobPlanTest, RealModelsPassTheCheckAtEveryPrefetch) {
  using schedules::Opcode;
  for (const char* tied : {", tie_word_embeddings: true", ""}) {
    for (const char* prefetch : {"0", "1", "2"}) {
      const JobPlan plan = MakeJobPlan(
          TestJob(std::string("{ranks: 3, fsdp: {prefetch: ") + prefetch + "}}", "{compute: fp64}", tied));
      EXPECT_EQ(schedules::CheckStage(plan.outline, plan.options, plan.stage), absl::OkStatus());
      const schedules::Program& train = plan.stage.train;
      const int head = static_cast<int>(plan.units.size()) - 1;
      const int m = plan.train.microbatches_per_rank;
      EXPECT_EQ(m, 2);
      EXPECT_EQ(Count(train, Opcode::kUnshard, 1), 2 * m) << "forward and backward of a layer";
      EXPECT_EQ(Count(train, Opcode::kUnshard, head), m) << "they follow each other";
      for (int unit = 0; unit <= head; ++unit) {
        EXPECT_EQ(Count(train, Opcode::kReduceGradients, unit), m);
        EXPECT_EQ(Count(train, Opcode::kOptimizerStep, unit), 1);
        EXPECT_EQ(Count(plan.stage.begin, Opcode::kOptimizerStep, unit), 0);
        EXPECT_EQ(Count(plan.stage.update, Opcode::kOptimizerStep, unit), 1);
      }
    }
  }
}

std::string Parallelism(const schedules::Strategy& strategy, int ranks) {
  return "{ranks: " + std::to_string(ranks) + ", fsdp: {strategy: " + strategy.name + "}}";
}

TEST(JobPlanTest, EveryRowOfPlacementsIsAJobsStrategy) {
  for (const schedules::Strategy& strategy : schedules::Strategies()) {
    const JobPlan plan = MakeJobPlan(TestJob(Parallelism(strategy, 2)));
    EXPECT_EQ(plan.options.strategy, strategy);
    const bool has_outer = strategy.outer.gradients == schedules::Placement::kPartial;
    EXPECT_EQ(plan.options.dense.outer, has_outer ? 2 : 1) << "jobspec knows which have an outer axis";
    EXPECT_EQ(schedules::CheckStage(plan.outline, plan.options, plan.stage), absl::OkStatus());
  }
}

// What a job may give options for is what it communicates over.
TEST(JobPlanTest, EveryStrategyUsesTheGroupsOfItsPlacements) {
  for (const schedules::Strategy& strategy : schedules::Strategies()) {
    const v1::JobSpec job = TestJob(Parallelism(strategy, 2));
    std::set<std::string> used;
    for (const schedules::CommunicatorUse& use : CommunicatorUses(MakeJobPlan(job))) {
      used.insert(use.group);
    }
    const std::vector<std::string> groups =
        parallel::StepGroups(parallel::GridOf(job.parallelism()), strategy.name != "replicate",
                             /*counts_over_data=*/false);
    EXPECT_EQ(std::set<std::string>(groups.begin(), groups.end()), used) << strategy.name;
  }
}

TEST(JobPlanTest, GroupOptionsReachItsCommunicatorsAndStreams) {
  v1::JobSpec job = TestJob("{ranks: 2}");
  EXPECT_TRUE(MakeJobPlan(job).group_options.empty());
  EXPECT_TRUE(HighPriorityStreams(MakeJobPlan(job)).empty());
  job.mutable_resources()->set_device(v1::DEVICE_CUDA);
  job.mutable_parallelism()->mutable_nccl()->mutable_dp_cp()->set_max_ctas(16);
  job.mutable_parallelism()->mutable_nccl()->mutable_dp_cp_ag()->set_high_priority(true);
  EXPECT_EQ(jobspec::ToText(jobspec::Validate(job)), "");
  const JobPlan plan = MakeJobPlan(job);
  EXPECT_EQ(plan.group_options.at("dp_cp"), (parallel::GroupOptions{.max_ctas = 16}));
  EXPECT_EQ(plan.group_options.at("dp_cp_ag"),
            (parallel::GroupOptions{.high_priority = true, .max_ctas = 16}));
  EXPECT_EQ(HighPriorityStreams(plan), std::set<std::string>{"gather"});
  EXPECT_THAT(PlanToText(plan, {}), HasSubstr("gather (dp_cp_ag, 2 ranks, high priority, at most 16 CTAs), "
                                              "reduce (dp_cp, 2 ranks, at most 16 CTAs), norm"));
}

// What each strategy keeps, in elements of the padded unit.
TEST(JobPlanTest, EveryStrategyKeepsWhatItsPlacementsSay) {
  struct Kept {
    int weights;  // pieces of six ranks
    int gradients;
    int full_gradient;  // while contributions are accumulated
    int gathered;
  };
  const std::map<std::string, Kept> kKept = {{"replicate", {6, 6, 6, 0}}, {"zero1", {1, 1, 6, 6}},
                                             {"zero2", {1, 1, 0, 6}},     {"zero3", {1, 1, 0, 6}},
                                             {"hsdp", {2, 2, 0, 6}},      {"hfsdp", {1, 2, 0, 6}}};
  for (const schedules::Strategy& strategy : schedules::Strategies()) {
    const JobPlan plan = MakeJobPlan(TestJob(Parallelism(strategy, 6)));
    const Kept& kept = kKept.at(strategy.name);
    for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
      SCOPED_TRACE(testing::Message() << strategy.name << ", " << plan.units[unit].name);
      const int64_t piece = fsdp::ShardElements(plan.layouts[unit][0], {.inner = 6}) * 4;  // bytes of fp32
      std::map<schedules::BufferKind, int64_t> bytes;
      for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
        if (buffer.subject == unit) {
          bytes[buffer.kind] = buffer.bytes.bound;
        }
      }
      using schedules::BufferKind;
      EXPECT_EQ(bytes[BufferKind::kWeights], kept.weights * piece);
      EXPECT_EQ(bytes[BufferKind::kOptimizerState], 2 * kept.weights * piece);
      EXPECT_EQ(bytes[BufferKind::kGradients], kept.gradients * piece);
      EXPECT_EQ(bytes[BufferKind::kFullGradient], kept.full_gradient * piece);
      EXPECT_EQ(bytes[BufferKind::kGathered], kept.gathered * piece);
    }
  }
}

TEST(JobPlanTest, WeightDecayLeavesOutParametersThatPatternsName) {
  const auto constant = [](const v1::JobSpec& job) {
    std::vector<std::string> names;
    for (const fsdp::ClassLayouts& layouts : MakeJobPlan(job).layouts) {
      for (const fsdp::Parameter& parameter : layouts[0].parameters) {
        if (!parameter.decays) {
          names.push_back(parameter.name);
        }
      }
    }
    return names;
  };
  v1::JobSpec job = TestJob();
  std::vector<std::string> norms;
  for (const std::string layer : {"0", "1", "2", "3"}) {
    norms.push_back("model.layers." + layer + ".input_layernorm.weight");
    norms.push_back("model.layers." + layer + ".post_attention_layernorm.weight");
  }
  norms.push_back("model.norm.weight");
  EXPECT_EQ(constant(job), norms) << "the default";
  job.mutable_training()->mutable_optimizer()->set_no_weight_decay("none");
  EXPECT_EQ(constant(job), std::vector<std::string>());
  job.mutable_training()->mutable_optimizer()->set_no_weight_decay("model.norm.*, lm_head*");
  EXPECT_EQ(constant(job), (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
}

TEST(JobPlanTest, AFrozenUnitHasWeightsAndNothingElse) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_frozen("layers.1");
  const JobPlan plan = MakeJobPlan(job);
  const int frozen = 2;
  ASSERT_EQ(plan.units[frozen].name, "layers.1");
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    using schedules::BufferKind;
    const bool of_unit = buffer.kind == BufferKind::kGradients ||
                         buffer.kind == BufferKind::kOptimizerState ||
                         buffer.kind == BufferKind::kContribution || buffer.kind == BufferKind::kStaging ||
                         buffer.kind == BufferKind::kNormTerms || buffer.kind == BufferKind::kUpdateNorms;
    EXPECT_FALSE(of_unit && buffer.subject == frozen) << buffer.name;
  }
  using schedules::Opcode;
  EXPECT_EQ(Count(plan.stage.train, Opcode::kOptimizerStep, frozen), 0);
  EXPECT_EQ(Count(plan.stage.train, Opcode::kReduceGradients, frozen), 0);
  EXPECT_EQ(Count(plan.stage.train, Opcode::kUnshard, frozen),
            Count(plan.stage.train, Opcode::kUnshard, frozen + 1))
      << "the gradient of its input needs it in the backward as well";
  EXPECT_LT(plan.stage.arena_bytes, MakeJobPlan(TestJob()).stage.arena_bytes);
}

TEST(JobPlanTest, KeptUnitsAreGatheredOncePerMicrobatch) {
  const auto gathers = [](const char* kept) {
    v1::JobSpec job = TestJob();
    job.mutable_parallelism()->mutable_fsdp()->set_keep_gathered(kept);
    const JobPlan plan = MakeJobPlan(job);
    std::vector<int> counts;
    for (size_t unit = 0; unit < plan.units.size(); ++unit) {
      counts.push_back(Count(plan.stage.train, schedules::Opcode::kUnshard, static_cast<int>(unit)));
    }
    return counts;
  };
  EXPECT_EQ(gathers("none"), (std::vector<int>{3, 6, 6, 6, 6, 3}));
  EXPECT_EQ(gathers("layers.0, layers.3"), (std::vector<int>{3, 3, 6, 6, 3, 3}));
  EXPECT_EQ(gathers("all"), (std::vector<int>{3, 3, 3, 3, 3, 3}));
}

TEST(JobPlanTest, EveryCommunicatorHasAGroupAndComesOnce) {
  const JobPlan plan = MakeJobPlan(TestJob("{ranks: 3}"));
  std::vector<std::string> uses;
  for (const schedules::CommunicatorUse& use : CommunicatorUses(plan)) {
    uses.push_back(use.purpose);
    EXPECT_EQ(GroupRanks(plan, use.group), 3) << use.group;
  }
  std::sort(uses.begin(), uses.end());
  EXPECT_EQ(uses, (std::vector<std::string>{"gather", "norm", "reduce"}));
  EXPECT_EQ(MicrobatchesPerStep(plan), 6);
}

v1::JobSpec Sparse(const std::string& moe) {
  return TestJob("{ranks: 2, expert: 2}", "{compute: fp32}",
                 ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 32" + moe + "}",
                 "qwen3_moe");
}

// A controller has jobs that were resolved by a version without the field.
TEST(JobPlanTest, JobWithoutAScopeHasTheMicrobatchs) {
  const v1::JobSpec job = Sparse(", router_aux_loss_coef: 0.01");
  v1::JobSpec older = job;
  older.mutable_model()->mutable_moe()->clear_router_aux_loss_scope();
  EXPECT_EQ(MakeJobPlan(older).program_digest, MakeJobPlan(job).program_digest);
}

TEST(JobPlanTest, FirstTokensOfEarlierBuildsJobsCount) {
  const v1::JobSpec job = Sparse("");
  v1::JobSpec older = job;
  older.mutable_data()->clear_count_first_token();
  EXPECT_TRUE(MakeJobPlan(older).train.data.counts_first_tokens);
  EXPECT_EQ(MakeJobPlan(older).program_digest, MakeJobPlan(job).program_digest);
}

// Of every sparse layer and microbatch: an exchange with all ranks, on a stream of its own.
TEST(JobPlanTest, AGlobalBalanceIsExchangedBesideEverythingElse) {
  const JobPlan plan = MakeJobPlan(Sparse(", router_aux_loss_coef: 0.01, router_aux_loss_scope: global"));
  int exchanges = 0;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.communicator < 0) {
      continue;
    }
    const schedules::CommunicatorUse& use = plan.stage.train.communicators[instruction.communicator];
    if (use.purpose == "balance") {
      ++exchanges;
      EXPECT_EQ(use.group, "dp_cp");
      EXPECT_EQ(plan.stage.train.streams[instruction.stream].name, "balance");
      EXPECT_EQ(instruction.opcode, schedules::Opcode::kForward);
    }
  }
  EXPECT_EQ(exchanges, 4 * plan.train.microbatches_per_rank);
  const JobPlan without =
      MakeJobPlan(Sparse(", router_aux_loss_coef: 0.01, router_aux_loss_scope: sequence"));
  for (const schedules::Stream& stream : without.stage.train.streams) {
    EXPECT_NE(stream.name, "balance");
  }
}

TEST(JobPlanTest, DigestsNameTheProgramAndTheParameters) {
  const JobPlan plan = MakeJobPlan(TestJob());
  EXPECT_EQ(plan.program_digest.size(), 64u);
  EXPECT_EQ(plan.program_digest, MakeJobPlan(TestJob()).program_digest);
  EXPECT_NE(plan.program_digest, MakeJobPlan(TestJob("{ranks: 2, fsdp: {prefetch: 2}}")).program_digest);
  EXPECT_EQ(plan.parameters_digest,
            MakeJobPlan(TestJob("{ranks: 2, fsdp: {prefetch: 2}}")).parameters_digest);
  EXPECT_EQ(plan.parameters_digest, MakeJobPlan(TestJob("{ranks: 3}")).parameters_digest)
      << "parameters know no ranks";
  EXPECT_NE(
      plan.parameters_digest,
      MakeJobPlan(TestJob("{ranks: 2}", "{compute: fp32}", ", tie_word_embeddings: true")).parameters_digest);
}

TEST(JobPlanTest, TypesAreThoseOfTheSpecByUnit) {
  const auto text = [](const std::string& precision) {
    return PrecisionText(MakeJobPlan(TestJob("{ranks: 2}", precision)));
  };
  EXPECT_EQ(text("{compute: fp32}"), "fp32");
  EXPECT_EQ(text("{compute: bf16}"), "bf16");
  EXPECT_EQ(text("{compute: bf16, transport: fp32}"), "bf16; gradients between ranks fp32");
  EXPECT_EQ(text("{compute: bf16, head: {compute: fp32}}"),
            "bf16, head fp32; gradients between ranks bf16, head fp32");
  v1::JobSpec job = TestJob("{ranks: 2}", "{compute: bf16}");
  job.mutable_precision()->set_deterministic(false);
  job.mutable_resources()->set_device(v1::DEVICE_CUDA);
  EXPECT_EQ(PrecisionText(MakeJobPlan(job)), "bf16; bits need not repeat");
  job.mutable_resources()->set_device(v1::DEVICE_CPU);
  EXPECT_EQ(PrecisionText(MakeJobPlan(job)), "bf16") << "CPUs' always do";
  const JobPlan plan =
      MakeJobPlan(TestJob("{ranks: 2}", "{compute: bf16, transport: fp32, head: {transport: bf16}}"));
  using enum model::ComputeType;
  EXPECT_EQ(plan.precision.Of("layers.3"),
            (model::UnitTypes{.main = kFp32, .compute = kBf16, .transport = kFp32}));
  EXPECT_EQ(plan.precision.Of("head"),
            (model::UnitTypes{.main = kFp32, .compute = kBf16, .transport = kBf16}));
}

TEST(JobPlanTest, UnrepeatableAttentionOnGpusTakesLessMemory) {
  const auto plan = [](bool deterministic, v1::Device device) {
    v1::JobSpec job = TestJob("{ranks: 2}", "{compute: bf16}");
    job.mutable_precision()->set_deterministic(deterministic);
    job.mutable_model()->set_head_dim(16);
    job.mutable_training()->set_sequence_length(4096);
    job.mutable_resources()->set_device(device);
    return MakeJobPlan(job);
  };
  const JobPlan on_gpus = plan(true, v1::DEVICE_CUDA);
  EXPECT_TRUE(on_gpus.precision.repeats);
  EXPECT_NE(plan(false, v1::DEVICE_CUDA).program_digest, on_gpus.program_digest);
  EXPECT_LT(plan(false, v1::DEVICE_CUDA).stage.arena_bytes, on_gpus.stage.arena_bytes);
  EXPECT_EQ(plan(false, v1::DEVICE_CPU).program_digest, plan(true, v1::DEVICE_CPU).program_digest);
}

TEST(JobPlanTest, ParametersHaveNoTypeAndNoRanks) {
  const auto digest = [](const std::string& parallelism, const std::string& precision,
                         const std::string& frozen) {
    v1::JobSpec job = TestJob(parallelism, precision);
    job.mutable_training()->set_frozen(frozen);
    return MakeJobPlan(job).parameters_digest;
  };
  const std::string plain = digest("{ranks: 2}", "{compute: fp32}", "none");
  EXPECT_EQ(digest("{ranks: 3}", "{compute: bf16, head: {compute: fp32}}", "none"), plain);
  EXPECT_EQ(digest("{ranks: 2}", "{compute: fp64}", "none"), plain);
  EXPECT_NE(digest("{ranks: 2}", "{compute: fp32}", "embedding"), plain) << "what is trained counts";
}

TEST(JobPlanTest, WhatValidateRefusesIsNotPlannedSilently) {
  v1::JobSpec job = TestJob();
  job.mutable_training()->set_global_batch_size(13);
  EXPECT_THROW(MakeJobPlan(job), std::logic_error);
  job = TestJob();
  job.mutable_precision()->set_compute(v1::COMPUTE_TYPE_FP8);
  EXPECT_THROW(MakeJobPlan(job), std::logic_error);
}

TEST(JobPlanTest, ValidationThatNeverRunsHasNoProgram) {
  v1::JobSpec never = TestJob();
  never.mutable_training()->set_validate_every_steps(0);
  v1::JobSpec nothing = TestJob();
  nothing.mutable_training()->set_validation_batches(0);
  for (const v1::JobSpec& job : {never, nothing}) {
    const JobPlan plan = MakeJobPlan(job);
    EXPECT_TRUE(plan.stage.validate.instructions.empty());
    EXPECT_FALSE(plan.stage.train.instructions.empty());
  }
}

TEST(JobPlanTest, RanksShareTheMicrobatchesOfAValidation) {
  v1::JobSpec job = TestJob();
  job.mutable_parallelism()->set_ranks(4);
  job.mutable_training()->set_global_batch_size(16);
  for (const auto& [batches, rounds] : std::map<int, int>{{1, 1}, {4, 1}, {5, 2}, {16, 4}}) {
    job.mutable_training()->set_validation_batches(batches);
    EXPECT_EQ(MakeJobPlan(job).stage.validate.num_microbatches, rounds) << batches;
  }
}

}  // namespace
}  // namespace tandem::plan
