// SPDX-License-Identifier: Apache-2.0
#include "plan/advice.h"

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
#include "plan/prediction.h"
#include "plan/quantity_text.h"
#include "schedules/simulate/device_profile.h"
#include "tests/plan/test_job.h"

namespace tandem::plan {
namespace {

using schedules::DeviceProfile;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string AdviceText(const v1::JobSpec& job, const DeviceProfile& profile) {
  const JobPlan plan = MakeJobPlan(job);
  std::string text;
  for (const std::string& sentence : Advise(job, plan, *Predict(plan, profile), profile).sentences) {
    text += sentence + "\n";
  }
  return text;
}

TEST(AdviceTest, TheScheduleThatHidesAnExchangeIsRecommended) {
  const v1::JobSpec job = SparseJob("sequential", "fixed");
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("parallelism.schedule overlap instead of sequential( with "
                            "parallelism.overlap.delay_weight_gradients true)? saves"));
  EXPECT_THAT(AdviceText(job, profile),
              ContainsRegex("compute waits .*[0-9] ms for exchanges of the forward"));
  EXPECT_THAT(AdviceText(SparseJob("overlap", "fixed"), profile), Not(HasSubstr("instead of sequential")));
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

TEST(AdviceTest, TriedChangesOfSparseJobsAreValidSpecs) {
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
        SCOPED_TRACE(
            absl::StrCat(schedule, ", ", chunks, ": ", trial.change.field.path, " ", trial.change.field.to));
        v1::JobSpec changed = job;
        Apply(trial.change.field, changed);
        for (const FieldChange& field : trial.change.beside) {
          Apply(field, changed);
        }
        EXPECT_EQ(jobspec::ToText(jobspec::Validate(changed)), "");
        EXPECT_EQ(Predict(MakeJobPlan(jobspec::Resolve(changed)), profile)->step_ns, trial.step_ns);
        tried.insert(absl::StrCat(trial.change.field.path, " ", trial.change.field.to));
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
TEST(AdviceTest, WaitsOfComputeAreNamedByTheirCause) {
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  const v1::JobSpec job = SparseJob("sequential", "fixed, separate_weight_gradients: true");
  const std::string text = AdviceText(job, profile);
  EXPECT_THAT(text, Not(HasSubstr("for backward-weight")));
  EXPECT_THAT(text, ContainsRegex("for exchanges of the backward"));
}

// For a job that is too large, a change that makes it no larger is acceptable. Where the head needs the most,
// two microbatches of layers do not.
TEST(AdviceTest, TooLargeJobGetsOnlyNoLargerSchedules) {
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;
  profile.memory_bytes = 1000;
  for (const bool large_head : {false, true}) {
    v1::JobSpec job = SparseJob("sequential", "fixed");
    job.mutable_parallelism()->set_expert(2);
    if (large_head) {
      job.mutable_model()->set_vocab_size(4096);
    }
    const JobPlan plan = MakeJobPlan(job);
    const Prediction prediction = *Predict(plan, profile);
    const Advice advice = Advise(job, plan, prediction, profile);
    const Trial overlap = *std::find_if(advice.trials.begin(), advice.trials.end(), [](const Trial& trial) {
      return trial.change.field.path == "parallelism.schedule";
    });
    ASSERT_EQ(overlap.device_bytes <= prediction.device_bytes(), large_head) << "the job shows nothing";
    ASSERT_LT(static_cast<double>(overlap.step_ns), 0.98 * static_cast<double>(prediction.step_ns));
    EXPECT_THAT(
        advice.sentences.back(),
        HasSubstr(large_head ? "Tried: parallelism.schedule overlap instead of sequential saves"
                             : "No other prefetch, schedule or micro_batch_size that was tried and fits"));
  }
}

// What counts by microbatches is said, since another size of them then changes the numbers.
TEST(AdviceTest, SparseJobsOtherMicrobatchChangesItsResults) {
  v1::JobSpec job = SparseJob("overlap", "fixed");
  DeviceProfile profile = FastLink();
  profile.overhead_seconds = 1e-3;  // fewer and larger are better
  EXPECT_THAT(AdviceText(job, profile), ContainsRegex("instead of 1 \\(same global batch\\) saves"));
  job.mutable_model()->mutable_moe()->set_capacity_factor(1.5);
  job.mutable_model()->mutable_moe()->set_router_aux_loss_coef(0.1);
  EXPECT_THAT(AdviceText(job, profile),
              HasSubstr("(same global batch, other results: experts' capacity and the routers' loss are of a "
                        "microbatch) saves"));
}

TEST(AdviceTest, AFastLinkLeavesTheStepComputeBound) {
  const std::string text = AdviceText(TestJob(), FastLink());
  EXPECT_THAT(text, HasSubstr("Compute-bound: compute works 100 % of the step (most in backward-input "));
  EXPECT_THAT(text, Not(HasSubstr("The link limits")));
}

TEST(AdviceTest, SlowLinkIsNamedWithWhatWasTried) {
  const std::string text = AdviceText(TestJob(), SlowLink());
  EXPECT_THAT(text,
              ContainsRegex("^Communication: [0-9.]+ m?s of the step \\([0-9]+ %\\) is exposed; compute "
                            "waits [0-9.]+ m?s for gathers, "));
  EXPECT_THAT(text,
              ContainsRegex("The link limits: the (gather|reduce) stream needs [0-9.]+ m?s and compute "));
  EXPECT_THAT(text, Not(HasSubstr("Compute-bound")));
}

TEST(AdviceTest, PrefetchIsRecommendedWithItsSavingAndCost) {
  const v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  const JobPlan plan = MakeJobPlan(job);
  DeviceProfile profile = FastLink();
  profile.link.bytes_per_second = 3e7;  // a layer's gather takes a part of its compute
  const Prediction prediction = *Predict(plan, profile);
  const Advice advice = Advise(job, plan, prediction, profile);
  const Trial* trial = nullptr;
  for (const Trial& candidate : advice.trials) {
    if (candidate.change.field.path == "parallelism.fsdp.prefetch" &&
        (trial == nullptr || candidate.step_ns < trial->step_ns)) {
      trial = &candidate;
    }
  }
  ASSERT_NE(trial, nullptr);
  v1::JobSpec changed = job;
  changed.mutable_parallelism()->mutable_fsdp()->set_prefetch(std::stoi(trial->change.field.to));
  const Prediction again = *Predict(MakeJobPlan(changed), profile);
  EXPECT_EQ(trial->step_ns, again.step_ns) << "a trial is that job, planned";
  EXPECT_EQ(trial->arena_bytes, again.memory.arena_bytes);
  EXPECT_EQ(trial->device_bytes, again.device_bytes());
  ASSERT_EQ(advice.sentences.size(), 2u);
  EXPECT_THAT(advice.sentences[1],
              HasSubstr("parallelism.fsdp.prefetch " + trial->change.field.to + " instead of 0 saves " +
                        DurationText(prediction.step_ns - trial->step_ns)));
}

// The job, planned again with what the advice tried. One plan serves all profiles.
const JobPlan& PlanWith(const v1::JobSpec& job, const Trial& trial) {
  static std::map<std::tuple<int, std::string, std::string>, JobPlan> plans;
  const auto key =
      std::make_tuple(job.parallelism().fsdp().prefetch(), trial.change.field.path, trial.change.field.to);
  if (plans.count(key) == 0) {
    v1::JobSpec changed = job;
    Apply(trial.change.field, changed);
    plans[key] = MakeJobPlan(changed);
  }
  return plans.at(key);
}

TEST(AdviceTest, SavingsOfAChangeAreTheChangedJobs) {
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
                << trial.change.field.path << " " << trial.change.field.to;
            const int64_t saved = prediction.step_ns - trial.step_ns;
            const std::string change = absl::StrCat(trial.change.field.path, " ", trial.change.field.to,
                                                    " instead of ", trial.change.field.from);
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

DeviceProfile FastLinkInBf16() {
  DeviceProfile profile = FastLink();
  profile.compute["bf16"] = profile.compute.at("fp32");
  return profile;
}

// What is said about a job on a device that has just the memory of another.
std::string AdviceWithTheMemoryOf(const v1::JobSpec& other, const v1::JobSpec& job) {
  DeviceProfile profile = FastLinkInBf16();
  profile.memory_bytes = PlanMemory(MakeJobPlan(other)).arena_bytes;
  return AdviceText(job, profile);
}

// Nothing is gathered ahead, and a sequence is the least that a rank works on.
TEST(AdviceTest, RecomputationIsProposedWhereOnlyItFits) {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  job.mutable_training()->set_micro_batch_size(1);
  v1::JobSpec recomputing = job;
  recomputing.mutable_training()->set_recompute("layer");
  EXPECT_THAT(AdviceWithTheMemoryOf(recomputing, job),
              ContainsRegex("^It does not fit: .*; training.recompute [a-z,]+ instead of off needs "
                            "[0-9.]+ MiB and fits\\."));
  EXPECT_THAT(AdviceWithTheMemoryOf(recomputing, recomputing), Not(HasSubstr("does not fit")));
}

TEST(AdviceTest, RecomputingJobIsOfferedMoreRecomputation) {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}");
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_recompute("attention");
  v1::JobSpec recomputing = job;
  recomputing.mutable_training()->set_recompute("layer");
  EXPECT_THAT(AdviceWithTheMemoryOf(recomputing, job),
              ContainsRegex("^It does not fit: .*; training.recompute [a-z,]+ instead of attention needs "
                            "[0-9.]+ MiB and fits\\."));
}

TEST(AdviceTest, MoreShardingIsProposedWhereItFits) {
  const v1::JobSpec job = TestJob("{ranks: 6, fsdp: {strategy: replicate, prefetch: 0}}");
  v1::JobSpec sharded = job;
  sharded.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_ZERO3);
  EXPECT_THAT(AdviceWithTheMemoryOf(sharded, job),
              HasSubstr("parallelism.fsdp.strategy zero3 instead of replicate needs "));
}

// A job of one long sequence a microbatch, whose attention is computed by cuDNN.
v1::JobSpec LongJob() {
  v1::JobSpec job = TestJob("{ranks: 2, fsdp: {prefetch: 0}}", "{compute: bf16}", ", head_dim: 16");
  job.mutable_resources()->set_device(v1::DEVICE_CUDA);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_sequence_length(4096);
  return job;
}

v1::JobSpec Unrepeatable(v1::JobSpec job) {
  job.mutable_precision()->set_deterministic(false);
  return job;
}

TEST(AdviceTest, UnrepeatableAttentionIsProposedWhereOnlyItFits) {
  EXPECT_THAT(AdviceWithTheMemoryOf(Unrepeatable(LongJob()), LongJob()),
              ContainsRegex("^It does not fit: .*; precision.deterministic false instead of true \\(results "
                            "then do not repeat bit for bit\\) needs [0-9.]+ MiB and fits\\."));
  EXPECT_THAT(AdviceWithTheMemoryOf(Unrepeatable(LongJob()), Unrepeatable(LongJob())),
              Not(HasSubstr("precision.deterministic")));
}

// Recomputation costs time, and repeatable results may be worth it.
TEST(AdviceTest, RepeatableChangeIsProposedBesideTheFasterOne) {
  const v1::JobSpec job = LongJob();
  v1::JobSpec recomputing = job;
  recomputing.mutable_training()->set_recompute("layer");
  EXPECT_THAT(
      AdviceWithTheMemoryOf(recomputing, job),
      ContainsRegex("^It does not fit: .*; training.recompute [a-z,]+ instead of off needs [0-9.]+ MiB "
                    "and fits; so does precision.deterministic false instead of true \\(results then do "
                    "not repeat bit for bit\\), which needs [0-9.]+ MiB and [0-9.]+ % less time\\."));
}

TEST(AdviceTest, NeverFittingJobLearnsWhatDoesNotRepeat) {
  DeviceProfile profile = FastLinkInBf16();
  profile.memory_bytes = 1000;
  EXPECT_THAT(
      AdviceText(LongJob(), profile),
      ContainsRegex("precision.deterministic false instead of true \\(results then do not repeat bit for "
                    "bit\\)( with training.recompute [a-z,]+)? needs [0-9.]+ MiB; beside it use more ranks, "
                    "or shorter sequences"));
}

TEST(AdviceTest, JobFittingOnlyWithBothIsOfferedBoth) {
  v1::JobSpec both = Unrepeatable(LongJob());
  both.mutable_training()->set_recompute("layer");
  EXPECT_THAT(
      AdviceWithTheMemoryOf(both, LongJob()),
      ContainsRegex("^It does not fit: .*; precision.deterministic false instead of true \\(results then do "
                    "not repeat bit for bit\\) with training.recompute layer needs [0-9.]+ MiB and "
                    "fits\\."));
}

}  // namespace
}  // namespace tandem::plan
