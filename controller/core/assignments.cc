// SPDX-License-Identifier: Apache-2.0
#include "controller/core/assignments.h"

#include "controller/core/checkpoints.h"
#include "parallel/from_spec.h"
#include "parallel/job_groups.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// Trainers that have not left after this time are killed.
constexpr absl::Duration kCancelGrace = absl::Seconds(1);
constexpr absl::Duration kFailureGrace = absl::Milliseconds(500);

void FillAttempt(const v1::Job& job, const std::string& worker, v1::Assignment& out) {
  const v1::Attempt& attempt = Current(job);
  out.mutable_id()->set_job_id(job.id());
  out.mutable_id()->set_attempt(job.attempt());
  *out.mutable_resolved() = job.resolved();
  // The device is fixed at the first admission, for all attempts.
  out.mutable_resolved()->mutable_resources()->set_device(attempt.device());
  *out.mutable_slots() = attempt.slots();
  out.set_resume_from(attempt.resumed_from());
  // If the grid of a job that another version admitted does not fit, its assignment has no groups. Ranks
  // that run already have theirs, and ranks that start report what is wrong.
  if (const auto groups = GroupsOf(job.resolved()); groups.ok()) {
    out.mutable_groups()->Assign(groups->begin(), groups->end());
  }
  for (const v1::RankSlot& slot : attempt.slots()) {
    if (slot.worker() != worker) {
      continue;
    }
    v1::RankStart& rank = *out.add_ranks();
    rank.set_rank(slot.rank());
    rank.set_slot(slot.slot());
  }
}

// Rank 0's worker passes a request for a checkpoint on, and the ranks agree among each other. If the request
// ends the job, every worker gets it, so that it knows why its ranks leave.
void PassOn(const JobEntry& entry, const std::string& worker, v1::Assignment& out) {
  const CheckpointWanted* wanted = WantedOf(entry);
  if (wanted == nullptr || (!wanted->stop() && Current(entry.job).slots(0).worker() != worker)) {
    return;
  }
  out.set_desired(wanted->stop() ? v1::DESIRED_STOP_AFTER_CHECKPOINT : v1::DESIRED_CHECKPOINT_AND_GO_ON);
  out.set_request(static_cast<uint64_t>(wanted->request()));
  out.set_reason(wanted->reason());
}

void SetGrace(absl::Duration grace, v1::Assignment& out) { *out.mutable_grace() = proto::ToProto(grace); }

}  // namespace

v1::Assignments AssignmentsFor(const State& state, const std::string& worker) {
  v1::Assignments out;
  for (const std::string& id : state.jobs.with_ranks()) {
    const JobEntry& entry = state.jobs.at(id);
    const v1::Job& job = entry.job;
    const bool run = job.state() != v1::JOB_STATE_STOPPING || job.outcome() == v1::JOB_STATE_SUCCEEDED;
    if (!RunsOn(state, CurrentAttempt(job), worker) ||
        (!run && StatusOf(state, worker, CurrentAttempt(job)) == nullptr)) {
      continue;
    }
    v1::Assignment& assignment = *out.add_all();
    FillAttempt(job, worker, assignment);
    assignment.set_connected(Current(job).has_ready());
    if (run) {
      assignment.set_desired(v1::DESIRED_RUN);
      PassOn(entry, worker, assignment);
      SetGrace(kFailureGrace, assignment);
    } else {
      assignment.set_desired(v1::DESIRED_STOP_NOW);
      assignment.set_reason(job.reason());
      SetGrace(job.outcome() == v1::JOB_STATE_CANCELLED ? kCancelGrace : kFailureGrace, assignment);
    }
  }
  const auto it = state.workers.find(worker);
  if (it != state.workers.end()) {
    for (const AttemptKey& key : it->second.unknown) {
      if (!IsLive(state, key)) {
        *out.add_unknown() = IdOf(key);
      }
    }
    for (const auto& [key, status] : it->second.attempts) {
      if ((status.ended() || status.has_refused()) && !IsLive(state, key)) {
        *out.add_forget() = IdOf(key);
      }
    }
  }
  return out;
}

bool MayChangeAssignments(const State& state, const AttemptReport& report) {
  const v1::AttemptStatus& status = report.status;
  return status.ended() || status.has_refused() ||
         StatusOf(state, report.worker, KeyOf(status.id())) == nullptr;
}

void MarkForgotten(const v1::Assignments& sent, const std::string& worker, State& state) {
  const auto it = state.workers.find(worker);
  if (it == state.workers.end()) {
    return;
  }
  for (const v1::AttemptId& id : sent.forget()) {
    it->second.attempts.erase(KeyOf(id));
    it->second.heard.erase(KeyOf(id));
    it->second.peer_lost.erase(KeyOf(id));
  }
}

absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<parallel::Group> groups,
                          parallel::BuildProcessGroups(parallel::GridOf(resolved.parallelism())));
  std::vector<v1::GroupList> out;
  for (const parallel::Group& group : groups) {
    v1::GroupList& list = out.emplace_back();
    list.set_name(group.name);
    list.mutable_ranks()->Assign(group.ranks.begin(), group.ranks.end());
    if (group.clone_of >= 0) {
      list.set_clone_of(group.clone_of);
    }
  }
  return out;
}

}  // namespace tandem::controller
