// SPDX-License-Identifier: Apache-2.0
#include "controller/core/causes.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/core/checkpoints.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

// Returns how long a worker has been away; zero while it is connected.
absl::Duration Away(const State& state, const std::string& worker, absl::Time now) {
  const auto it = state.workers.find(worker);
  if (it == state.workers.end()) {
    return now - state.awake_since;
  }
  return it->second.connected ? absl::ZeroDuration() : now - std::max(it->second.since, state.awake_since);
}

// Returns when the first rank of the current attempt reported that it has lost a peer; infinite future if
// none has.
absl::Time PeerLostAt(const State& state, const v1::Job& job) {
  absl::Time first = absl::InfiniteFuture();
  for (const std::string& name : WorkersOf(job)) {
    const auto worker = state.workers.find(name);
    if (worker != state.workers.end()) {
      const auto it = worker->second.peer_lost.find(CurrentAttempt(job));
      first = it == worker->second.peer_lost.end() ? first : std::min(first, it->second);
    }
  }
  return first;
}

// "rank 3 on worker a".
std::string NameOf(const v1::RankSlot& slot) {
  return absl::StrCat("rank ", slot.rank(), " on worker ", slot.worker());
}

void FillIn(const v1::RankSlot& slot, const v1::RankStatus& status, v1::Cause& cause) {
  if (!cause.has_rank()) {
    cause.set_rank(slot.rank());
  }
  if (cause.worker().empty()) {
    cause.set_worker(slot.worker());
  }
  if (cause.step() == 0) {
    cause.set_step(status.step());
  }
}

std::optional<v1::Cause> CauseOf(const v1::RankSlot& slot, const v1::RankStatus& status,
                                 bool killed_by_restart) {
  v1::Cause cause;
  if (status.has_cause()) {
    // The daemon reports REQUESTED only for the signals that it sent. So a rank that another process killed
    // within the grace of a stop, which the loss of its peer caused, is still the first cause.
    cause = status.cause();
    if (cause.class_() == v1::FAILURE_CLASS_REQUESTED &&
        cause.reason() == proto::ReasonCode("WorkerStopped")) {
      // The daemon was asked to end, but not by this controller.
      cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
      cause.set_reason(proto::ReasonCode("StoppedByWorker"));
      cause.set_message(absl::StrCat("worker ", slot.worker(),
                                     " was asked to end, as by SIGTERM, and stopped ",
                                     "its ranks: ", cause.message()));
      cause.clear_signal();
      cause.clear_exit_code();
    }
  } else if (status.exited() && !status.finished()) {
    const std::string who = NameOf(slot);
    if (killed_by_restart) {
      cause = MakeCause(v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("WorkerLost"),
                        absl::StrCat(who, " died with the worker's daemon, which was restarted"));
    } else if (status.stop_requested()) {
      cause = MakeCause(v1::FAILURE_CLASS_REQUESTED, proto::ReasonCode("Stopped"),
                        absl::StrCat(who, " was stopped"));
    } else {
      cause = MakeCause(v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("ExitedWithoutFinishing"),
                        absl::StrCat(who, " exited before it had finished, without saying why"));
    }
  } else {
    return std::nullopt;
  }
  FillIn(slot, status, cause);
  return cause;
}

// Finds two ranks that do not run the same job.
std::optional<v1::Cause> Disagreement(const State& state, const v1::Job& job) {
  const v1::RankSlot* first = nullptr;
  const v1::Ready* expected = nullptr;
  // Ranks of two builds that already train were started by an earlier controller, and go on.
  const bool starts = job.state() == v1::JOB_STATE_ADMITTED || job.state() == v1::JOB_STATE_STARTING;
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const v1::RankStatus* status = StatusOf(state, slot, CurrentAttempt(job));
    if (status == nullptr || !status->has_ready()) {
      continue;
    }
    if (expected == nullptr) {
      first = &slot;
      expected = &status->ready();
      continue;
    }
    const v1::Ready& ready = status->ready();
    const auto refusal = [&](v1::FailureClass failure, const char* reason, const std::string& message) {
      v1::Cause cause = MakeCause(failure, reason, message);
      cause.set_rank(slot.rank());
      cause.set_worker(slot.worker());
      return cause;
    };
    // Builds come first, because other digests may differ as a consequence; and even with equal digests, two
    // builds may compute other numbers.
    if (starts && expected->build() != ready.build()) {
      return refusal(v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("BuildMismatch"),
                     absl::StrCat(NameOf(*first), " is of build ", expected->build(), ", and ", NameOf(slot),
                                  " of build ", ready.build(),
                                  ", which may compute other numbers; run the same build on every worker"));
    }
    // An earlier build does not report what it starts from.
    const bool both_say = expected->has_started_from() && ready.has_started_from();
    const std::string theirs = both_say ? expected->started_from().digest() : "";
    const std::string ours = both_say ? ready.started_from().digest() : "";
    const struct {
      const char* what;
      const char* remedy;
      v1::FailureClass failure;
      const std::string& a;
      const std::string& b;
    } checks[] = {
        {"program", "run the same build on every worker", v1::FAILURE_CLASS_INFRASTRUCTURE,
         expected->program_digest(), ready.program_digest()},
        {"layout", "run the same build on every worker", v1::FAILURE_CLASS_INFRASTRUCTURE,
         expected->layout_digest(), ready.layout_digest()},
        {"data", "make data.train and data.validation the same files on every worker", v1::FAILURE_CLASS_USER,
         expected->data_digest(), ready.data_digest()},
        {"weights that they start from", "make checkpoint.start_from the same files on every worker",
         v1::FAILURE_CLASS_USER, theirs, ours},
        {"kernels of their GPUs", "run the same build on workers with GPUs of one kind",
         v1::FAILURE_CLASS_INFRASTRUCTURE, expected->kernels_digest(), ready.kernels_digest()},
    };
    for (const auto& check : checks) {
      if (check.a != check.b) {
        return refusal(
            check.failure, proto::ReasonCode("DigestMismatch"),
            absl::StrCat(NameOf(*first), " and ", NameOf(slot), " disagree on the ", check.what, " (",
                         check.a.substr(0, 12), " and ", check.b.substr(0, 12), "); ", check.remedy));
      }
    }
  }
  return std::nullopt;
}

// Whether a rank that loads has moved since `since`. Reading a large checkpoint may take any time, so each
// part that is read counts as a move. So does the begin of loading, which the worker reports only as a move;
// it therefore gives the rank the time of a start once more.
bool LoadsOn(const State& state, const v1::RankSlot& slot, const AttemptKey& key,
             const v1::RankStatus& status, absl::Time since) {
  if (status.phase() != v1::RANK_PHASE_LOADING || !status.has_since_progress()) {
    return false;
  }
  return state.workers.at(slot.worker()).heard.at(key) - proto::FromProto(status.since_progress()) > since;
}

// Names the ranks that are not ready in time, and their phases. While a worker is away, its own timeout
// counts instead. After an absence of the controller all ranks have the whole time again.
std::optional<v1::Cause> StartTimeout(const State& state, const v1::Job& job, absl::Time now) {
  constexpr int kMostNamed = 4;
  const absl::Time began = std::max(proto::FromProto(Current(job).started()), state.awake_since);
  if ((job.state() != v1::JOB_STATE_ADMITTED && job.state() != v1::JOB_STATE_STARTING) ||
      now - began < state.limits.start_timeout) {
    return std::nullopt;
  }
  v1::Cause cause;
  std::vector<std::string> late;
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const auto worker = state.workers.find(slot.worker());
    if (worker == state.workers.end() || !worker->second.connected) {
      return std::nullopt;
    }
    const v1::RankStatus* status = StatusOf(state, slot, CurrentAttempt(job));
    if (status != nullptr && (status->has_ready() || LoadsOn(state, slot, CurrentAttempt(job), *status,
                                                             now - state.limits.start_timeout))) {
      continue;
    }
    if (cause.missing_ranks().empty()) {
      cause.set_rank(slot.rank());
      cause.set_worker(slot.worker());
    }
    cause.add_missing_ranks(slot.rank());
    if (cause.missing_ranks_size() <= kMostNamed) {
      late.push_back(absl::StrCat("rank ", slot.rank(), " on worker ", slot.worker(), " is ",
                                  status == nullptr ? "not accepted" : proto::LowerName(status->phase())));
    }
  }
  if (cause.missing_ranks().empty()) {
    return std::nullopt;
  }
  if (cause.missing_ranks_size() > kMostNamed) {
    late.push_back(absl::StrCat("and ", cause.missing_ranks_size() - kMostNamed, " more"));
  }
  cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
  cause.set_reason(proto::ReasonCode("StartTimeout"));
  cause.set_message(absl::StrCat(
      "not ready within ", absl::FormatDuration(state.limits.start_timeout), ": ", absl::StrJoin(late, ", "),
      "; see the logs of the ranks and of the worker, or give the controller a longer "
      "--start-timeout"));
  *cause.mutable_time() = proto::ToProto(now);
  return cause;
}

// Reports a worker that has returned without the ranks of the job's current attempt, or that is away for too
// long.
std::optional<v1::Cause> LossOf(const State& state, const v1::Job& job, const std::string& name,
                                absl::Time now) {
  const AttemptKey key = CurrentAttempt(job);
  const auto worker = state.workers.find(name);
  if (worker != state.workers.end() && worker->second.missing.count(key) > 0 &&
      job.state() != v1::JOB_STATE_STOPPING) {
    return WorkerLost(job, name, "returned without its ranks");
  }
  const absl::Duration away = Away(state, name, now);
  // A worker that is away while its peers have lost ranks has had time enough to report why.
  const bool missed = away > absl::ZeroDuration() && now >= PeerLostAt(state, job) + state.limits.cause_wait;
  if (!missed && away < state.limits.worker_timeout) {
    return std::nullopt;
  }
  const bool over =
      std::all_of(Current(job).slots().begin(), Current(job).slots().end(), [&](const v1::RankSlot& slot) {
        const v1::RankStatus* said = StatusOf(state, slot, key);
        return slot.worker() != name || (said != nullptr && said->exited());
      });
  if (over) {
    return std::nullopt;
  }
  return WorkerLost(
      job, name,
      missed ? "is away, and other ranks have lost theirs"
             : absl::StrCat("has been away for ", absl::FormatDuration(state.limits.worker_timeout)));
}

// Adjusts `first` to what was requested of the ranks; nullopt if it only follows from their stop.
std::optional<v1::Cause> InViewOfRequests(const JobEntry& entry, v1::Cause first) {
  const v1::Job& job = entry.job;
  const CheckpointWanted* const wanted = WantedOf(entry);
  const bool ends = wanted != nullptr && wanted->stop();
  if (ends && first.class_() == v1::FAILURE_CLASS_PREEMPTED) {
    first.set_class_(v1::FAILURE_CLASS_REQUESTED);  // the ranks end after a checkpoint, as asked
  }
  if (first.class_() != v1::FAILURE_CLASS_REQUESTED) {
    return first;
  }
  if (job.state() == v1::JOB_STATE_STOPPING && job.outcome() != v1::JOB_STATE_SUCCEEDED) {
    return std::nullopt;
  }
  if (ends) {
    first.set_reason(wanted->reason());
  } else {
    // The controller requested nothing: the daemon stopped its ranks on its own, as it does when its machine
    // shuts down.
    first.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
    first.set_reason(proto::ReasonCode("StoppedByWorker"));
  }
  return first;
}

}  // namespace

int DistanceFromRoot(const v1::Cause& cause) {
  switch (cause.class_()) {
    case v1::FAILURE_CLASS_OUT_OF_MEMORY:
      return 0;
    case v1::FAILURE_CLASS_REQUESTED:
      return 5;
    case v1::FAILURE_CLASS_PEER_LOST:
      return 4;
    default:
      if (cause.reason() == proto::ReasonCode("WorkerLost") ||
          cause.reason() == proto::ReasonCode("StoppedByWorker")) {
        return 2;
      }
      return cause.after_stop() ? 3 : cause.signal() != 0 ? 0 : 1;
  }
}

bool Precedes(const v1::Cause& a, const v1::Cause& b) {
  const auto key = [](const v1::Cause& cause) {
    // A cause without a time is not known to be earlier than a cause with one.
    return std::make_tuple(DistanceFromRoot(cause),
                           cause.has_time() ? proto::FromProto(cause.time()) : absl::InfiniteFuture(),
                           cause.has_rank() ? cause.rank() : -1);
  };
  return key(a) < key(b);
}

bool IsWaitingForCause(const State& state, const JobEntry& entry, const v1::Cause& cause, absl::Time now) {
  if (cause.class_() != v1::FAILURE_CLASS_PEER_LOST) {
    return false;
  }
  const AttemptKey key = CurrentAttempt(entry.job);
  const bool all_known = std::all_of(Current(entry.job).slots().begin(), Current(entry.job).slots().end(),
                                     [&](const v1::RankSlot& slot) {
                                       const v1::RankStatus* said = StatusOf(state, slot, key);
                                       return said != nullptr && (said->exited() || said->has_cause());
                                     });
  return !all_known && now < PeerLostAt(state, entry.job) + state.limits.cause_wait;
}

v1::Cause MakeCause(v1::FailureClass failure, const std::string& reason, const std::string& message) {
  v1::Cause cause;
  cause.set_class_(failure);
  cause.set_reason(reason);
  cause.set_message(message);
  return cause;
}

v1::Cause WorkerLost(const v1::Job& job, const std::string& worker, const std::string& what) {
  v1::Cause cause = MakeCause(v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("WorkerLost"), "");
  cause.set_worker(worker);
  for (const v1::RankSlot& slot : Current(job).slots()) {
    if (slot.worker() == worker) {
      cause.add_missing_ranks(slot.rank());
    }
  }
  cause.set_message(absl::StrCat("worker ", worker, " ", what,
                                 "; its ranks: ", absl::StrJoin(cause.missing_ranks(), ", ")));
  return cause;
}

std::optional<v1::Cause> FirstCause(const State& state, const JobEntry& entry, absl::Time now) {
  const v1::Job& job = entry.job;
  const AttemptKey key = CurrentAttempt(job);
  std::optional<v1::Cause> first = Disagreement(state, job);
  const auto offer = [&first](v1::Cause cause) {
    if (!first || Precedes(cause, *first)) {
      first = std::move(cause);
    }
  };
  std::vector<int> not_ready;
  for (const v1::RankSlot& slot : Current(job).slots()) {
    const auto worker = state.workers.find(slot.worker());
    const v1::RankStatus* status = StatusOf(state, slot, key);
    if (status == nullptr || !status->has_ready()) {
      not_ready.push_back(slot.rank());
    }
    if (status != nullptr) {
      const bool killed_by_restart = worker->second.killed_by_restart.count(key) > 0;
      if (std::optional<v1::Cause> cause = CauseOf(slot, *status, killed_by_restart)) {
        offer(*std::move(cause));
      }
    }
  }
  for (const std::string& name : WorkersOf(job)) {
    const v1::AttemptStatus* status = StatusOf(state, name, key);
    if (status != nullptr && status->has_refused()) {
      v1::Cause cause = status->refused();
      if (cause.worker().empty()) {
        cause.set_worker(name);
      }
      offer(std::move(cause));
    }
    if (std::optional<v1::Cause> lost = LossOf(state, job, name, now)) {
      offer(*std::move(lost));
    }
  }
  if (std::optional<v1::Cause> late = StartTimeout(state, job, now)) {
    offer(*std::move(late));
  }
  if (first) {
    first = InViewOfRequests(entry, *std::move(first));
  }
  if (first && first->class_() == v1::FAILURE_CLASS_PEER_LOST && first->missing_ranks().empty() &&
      job.state() != v1::JOB_STATE_RUNNING && job.state() != v1::JOB_STATE_STOPPING) {
    first->mutable_missing_ranks()->Assign(not_ready.begin(), not_ready.end());
  }
  return first;
}

RankFate FateOf(const State& state, const JobEntry& entry, const v1::RankSlot& slot, absl::Time now) {
  const AttemptKey key = CurrentAttempt(entry.job);
  const v1::AttemptStatus* attempt = StatusOf(state, slot.worker(), key);
  const v1::RankStatus* status = StatusOf(state, slot, key);
  if ((status != nullptr && status->exited()) ||
      (attempt != nullptr && (attempt->ended() || attempt->has_refused()))) {
    return RankFate::kDead;
  }
  const auto worker = state.workers.find(slot.worker());
  const absl::Time stopping = proto::FromProto(entry.runtime.stopping_since());
  if (worker != state.workers.end() && worker->second.connected) {
    if (worker->second.missing.count(key) > 0) {
      return entry.runtime.accepted() ? RankFate::kDead : RankFate::kNeverRan;
    }
    // The worker was told to stop everything that is not listed. If it has the attempt after all, it reports
    // it, and takes no other ranks until its ranks have ended.
    const bool asked =
        now - std::max({stopping, worker->second.since, state.awake_since}) >= state.limits.settle;
    return attempt == nullptr && asked ? RankFate::kNeverRan : RankFate::kRunning;
  }
  const absl::Duration away = std::min(Away(state, slot.worker(), now), now - stopping);
  // A job can succeed only if every rank has reported, so then only the worker's timeout ends the wait.
  const bool lost = away >= state.limits.settle && entry.job.outcome() != v1::JOB_STATE_SUCCEEDED;
  return lost ? RankFate::kLost : RankFate::kRunning;
}

}  // namespace tandem::controller
