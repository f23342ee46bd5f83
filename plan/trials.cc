// SPDX-License-Identifier: Apache-2.0
#include "plan/trials.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "jobspec/name_list.h"
#include "jobspec/schema.h"
#include "plan/job_plan.h"
#include "plan/memory_plan.h"
#include "plan/prediction.h"
#include "platform/for_each_index.h"
#include "schedules/simulate/simulator.h"
#include "schedules/simulate/timeline.h"

namespace tandem::plan {
namespace {

constexpr char kPrefetch[] = "parallelism.fsdp.prefetch";
constexpr char kMicroBatch[] = "training.micro_batch_size";
constexpr char kSchedule[] = "parallelism.schedule";
constexpr char kOverlapBlock[] = "parallelism.overlap";
constexpr char kDelay[] = "parallelism.overlap.delay_weight_gradients";
constexpr char kSeparate[] = "parallelism.dispatch.separate_weight_gradients";
constexpr char kRecompute[] = "training.recompute";
constexpr char kStrategy[] = "parallelism.fsdp.strategy";
constexpr char kReplicas[] = "parallelism.replicas";
constexpr char kDeterministic[] = "precision.deterministic";

// The field at `path`, which both specs have.
FieldChange ChangeOf(const std::string& path, const v1::JobSpec& from, const v1::JobSpec& to) {
  return {.path = path,
          .from = jobspec::ValueText(jobspec::FindValue(from, path)),
          .to = jobspec::ValueText(jobspec::FindValue(to, path))};
}

void AddPrefetch(const v1::JobSpec& resolved, const StepFindings& findings,
                 std::vector<SpecChange>& changes) {
  const int now = resolved.parallelism().fsdp().prefetch();
  for (const int distance : {0, 1, 2}) {
    if (distance < now || (distance > now && findings.compute_waits)) {
      v1::JobSpec job = resolved;
      job.mutable_parallelism()->mutable_fsdp()->set_prefetch(distance);
      changes.push_back(
          {.kind = ChangeKind::kPrefetch, .field = ChangeOf(kPrefetch, resolved, job), .job = job});
    }
  }
}

void AddMicroBatch(const v1::JobSpec& resolved, std::vector<SpecChange>& changes) {
  const int64_t now = resolved.training().micro_batch_size();
  for (const int64_t size : {now * 2, now / 2}) {
    if (size > 0 && size != now) {
      v1::JobSpec job = resolved;
      job.mutable_training()->set_micro_batch_size(size);
      changes.push_back(
          {.kind = ChangeKind::kMicroBatch, .field = ChangeOf(kMicroBatch, resolved, job), .job = job});
    }
  }
}

// How microbatches follow each other where ranks share experts.
struct ScheduleChoice {
  bool overlaps = false;
  bool delays = false;
  bool separates = false;
  bool operator==(const ScheduleChoice&) const = default;
};

ScheduleChoice ScheduleOf(const v1::Parallelism& parallelism) {
  return {.overlaps = parallelism.schedule() == v1::SCHEDULE_OVERLAP,
          .delays = parallelism.overlap().delay_weight_gradients(),
          .separates = parallelism.dispatch().separate_weight_gradients()};
}

v1::JobSpec WithSchedule(v1::JobSpec job, const ScheduleChoice& to) {
  v1::Parallelism& parallelism = *job.mutable_parallelism();
  parallelism.set_schedule(to.overlaps ? v1::SCHEDULE_OVERLAP : v1::SCHEDULE_SEQUENTIAL);
  parallelism.mutable_dispatch()->set_separate_weight_gradients(to.separates);
  parallelism.clear_overlap();
  if (to.overlaps) {
    parallelism.mutable_overlap()->set_delay_weight_gradients(to.delays);
  }
  return job;
}

// The fields of a spec that make the one of the other.
std::vector<FieldChange> FieldsBetween(const ScheduleChoice& from, const ScheduleChoice& to) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const auto name = [](bool overlaps) { return overlaps ? "overlap" : "sequential"; };
  std::vector<FieldChange> fields;
  if (from.overlaps != to.overlaps) {
    fields.push_back({kSchedule, name(from.overlaps), name(to.overlaps)});
  }
  if (from.overlaps && !to.overlaps) {
    fields.push_back({kOverlapBlock, "{...}", ""});
  } else if (from.delays != to.delays) {
    fields.push_back({kDelay, truth(from.delays), truth(to.delays)});
  }
  if (from.separates != to.separates) {
    fields.push_back({kSeparate, truth(from.separates), to.separates ? "true" : ""});
  }
  return fields;
}

void AddSchedule(const v1::JobSpec& resolved, std::vector<SpecChange>& changes) {
  if (resolved.parallelism().expert() <= 1) {
    return;
  }
  const ScheduleChoice now = ScheduleOf(resolved.parallelism());
  for (const ScheduleChoice& other :
       {ScheduleChoice{}, ScheduleChoice{.separates = true}, ScheduleChoice{.overlaps = true},
        ScheduleChoice{.overlaps = true, .delays = true}}) {
    if (other != now) {
      const std::vector<FieldChange> fields = FieldsBetween(now, other);
      changes.push_back({.kind = ChangeKind::kSchedule,
                         .field = fields.front(),
                         .beside = {fields.begin() + 1, fields.end()},
                         .job = WithSchedule(resolved, other)});
    }
  }
}

// Whether training.recompute `words` computes again all that `now` does, and more.
bool RecomputesMore(const std::string& words, const std::string& now) {
  const std::vector<std::string> has = jobspec::NamesIn(words, "off");
  const std::vector<std::string> needs = jobspec::NamesIn(now, "off");
  const auto contains = [](const std::vector<std::string>& all, const std::string& word) {
    return std::find(all.begin(), all.end(), word) != all.end();
  };
  const bool covers = std::all_of(needs.begin(), needs.end(), [&](const std::string& word) {
    return contains(has, word) || contains(has, "layer");
  });
  return covers &&
         !std::all_of(has.begin(), has.end(), [&](const std::string& word) { return contains(needs, word); });
}

void AddRecompute(const v1::JobSpec& resolved, std::vector<SpecChange>& changes) {
  for (const char* words : {"attention", "mlp", "mamba", "gated_delta", "attention,mlp", "layer"}) {
    if (RecomputesMore(words, resolved.training().recompute())) {
      v1::JobSpec job = resolved;
      job.mutable_training()->set_recompute(words);
      changes.push_back(
          {.kind = ChangeKind::kRecompute, .field = ChangeOf(kRecompute, resolved, job), .job = job});
    }
  }
}

void AddStrategy(const v1::JobSpec& resolved, std::vector<SpecChange>& changes) {
  const v1::Parallelism& now = resolved.parallelism();
  if (now.fsdp().strategy() == v1::STRATEGY_ZERO3 || now.ranks() <= 1) {
    return;
  }
  v1::JobSpec job = resolved;
  job.mutable_parallelism()->mutable_fsdp()->set_strategy(v1::STRATEGY_ZERO3);
  job.mutable_parallelism()->set_replicas(1);
  SpecChange change{.kind = ChangeKind::kStrategy, .field = ChangeOf(kStrategy, resolved, job), .job = job};
  if (now.replicas() > 1) {
    change.beside.push_back(ChangeOf(kReplicas, resolved, job));
  }
  changes.push_back(std::move(change));
}

void AddRepeatability(const v1::JobSpec& resolved, std::vector<SpecChange>& changes) {
  // No other kernels depend on it.
  const bool has_both = resolved.resources().device() == v1::DEVICE_CUDA &&
                        resolved.precision().compute() == v1::COMPUTE_TYPE_BF16;
  if (!has_both || !resolved.precision().deterministic()) {
    return;
  }
  // A long sequence may fit only with both: without what layers keep, and without what this backward takes.
  const std::string& recompute = resolved.training().recompute();
  std::vector<std::string> tried = {recompute};
  if (RecomputesMore("layer", recompute)) {
    tried.emplace_back("layer");
  }
  for (const std::string& words : tried) {
    v1::JobSpec job = resolved;
    job.mutable_precision()->set_deterministic(false);
    job.mutable_training()->set_recompute(words);
    SpecChange change{
        .kind = ChangeKind::kRepeatability, .field = ChangeOf(kDeterministic, resolved, job), .job = job};
    if (words != recompute) {
      change.beside.push_back(ChangeOf(kRecompute, resolved, job));
    }
    changes.push_back(std::move(change));
  }
}

// Called from several threads.
Trial TryChange(const SpecChange& change, const schedules::DeviceProfile& profile) {
  const JobPlan plan = MakeUndigestedPlan(change.job);
  const schedules::Program& program = plan.stage.train;
  const schedules::Timeline timeline =
      schedules::Simulate(plan.outline, program, WorkloadOf(plan), profile).timeline;
  return {.change = change,
          .step_ns = schedules::StepNanoseconds(program, timeline),
          .exposed_ns = schedules::ExposedCommunication(program, timeline),
          .arena_bytes = plan.stage.arena_bytes,
          .device_bytes = plan.stage.arena_bytes + OutsideBytes(plan, profile)};
}

}  // namespace

std::vector<SpecChange> ChangesToTry(const v1::JobSpec& resolved, const StepFindings& findings) {
  std::vector<SpecChange> changes;
  AddPrefetch(resolved, findings, changes);
  AddMicroBatch(resolved, changes);
  AddSchedule(resolved, changes);
  if (findings.too_large) {
    AddRecompute(resolved, changes);
    AddStrategy(resolved, changes);
    AddRepeatability(resolved, changes);
  }
  std::erase_if(changes, [](const SpecChange& change) { return !jobspec::Validate(change.job).empty(); });
  return changes;
}

std::vector<Trial> TryChanges(const std::vector<SpecChange>& changes, const schedules::DeviceProfile& profile,
                              int most_threads) {
  std::vector<Trial> trials(changes.size());
  platform::ForEachIndex(changes.size(), most_threads,
                         [&](size_t i) { trials[i] = TryChange(changes[i], profile); });
  return trials;
}

}  // namespace tandem::plan
