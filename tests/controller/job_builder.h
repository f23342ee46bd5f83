// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/core/decide.h"
#include "controller/core/state.h"
#include "jobspec/jobspec.h"
#include "proto/names.h"
#include "proto/time.h"

namespace tandem::controller {

inline const absl::Time kStart = absl::FromUnixSeconds(1'600'000'000);

// A job of `ranks` ranks. Decide reads no more of a spec than these fields.
inline Submit SubmitOf(const std::string& name, int ranks, const std::string& request_id = "") {
  Submit out;
  out.id = "id-" + name;
  out.owner = "local";
  out.request_id = request_id;
  out.submitted.set_name(name);
  out.submitted.mutable_parallelism()->set_ranks(ranks);
  out.resolved = jobspec::Resolve(out.submitted);
  out.resolved.mutable_resources()->set_device(v1::DEVICE_AUTO);
  out.resolved.mutable_training()->set_steps(1'000'000);
  return out;
}

inline v1::Hello HelloOf(const std::string& worker, int slots, uint64_t incarnation = 1) {
  v1::Hello out;
  out.set_worker_id(worker);
  out.set_incarnation(incarnation);
  out.set_protocol_min(1);
  out.set_protocol_max(1);
  out.mutable_inventory()->set_hostname(worker + ".example");
  for (int i = 0; i < slots; ++i) {
    v1::Slot& slot = *out.mutable_inventory()->add_slots();
    slot.set_index(i);
    slot.set_device(v1::DEVICE_CPU);
    slot.set_healthy(true);
  }
  return out;
}

inline v1::AttemptStatus StatusOf(const std::string& job_id, int attempt = 1) {
  v1::AttemptStatus out;
  out.mutable_id()->set_job_id(job_id);
  out.mutable_id()->set_attempt(attempt);
  return out;
}

inline v1::RankStatus& AddRank(v1::AttemptStatus& status, int rank, v1::RankPhase phase) {
  v1::RankStatus& out = *status.add_ranks();
  out.set_rank(rank);
  out.set_phase(phase);
  if (phase >= v1::RANK_PHASE_READY) {
    out.mutable_ready()->set_program_digest("program");
    out.mutable_ready()->set_layout_digest("layout");
    out.mutable_ready()->set_data_digest("data");
  }
  out.set_finished(phase >= v1::RANK_PHASE_FINISHED);
  out.set_exited(phase == v1::RANK_PHASE_EXITED);
  return out;
}

inline v1::Cause CauseOf(v1::FailureClass failure, const std::string& reason, int signal = 0,
                         int64_t second = 0) {
  v1::Cause out;
  out.set_class_(failure);
  out.set_reason(reason);
  out.set_message(reason + " happened");
  out.set_signal(signal);
  *out.mutable_time() = proto::ToProto(kStart + absl::Seconds(second));
  return out;
}

// A State that is fed inputs at times that the test sets; keeps every event.
class Driver {
 public:
  Driver() { state.awake_since = kStart; }
  explicit Driver(v1::JobState until) : Driver() { Run(until); }

  Decision Feed(const Input& input) {
    Decision out = Step(input, now, state);
    events.insert(events.end(), out.events.begin(), out.events.end());
    return out;
  }
  void Connect(const std::string& worker, int slots, uint64_t incarnation = 1) {
    Feed(WorkerHello{.session = "s" + std::to_string(++sessions),
                     .hello = HelloOf(worker, slots, incarnation)});
  }
  void Connect(const v1::Hello& hello) {
    Feed(WorkerHello{.session = "s" + std::to_string(++sessions), .hello = hello});
  }
  void Disconnect(const std::string& worker) {
    Feed(WorkerDisconnected{.worker = worker, .session = state.workers.at(worker).session, .last_seen = now});
  }
  void Say(const std::string& worker, const v1::AttemptStatus& status) {
    Feed(AttemptReport{.worker = worker, .status = status});
  }
  // The worker reports that all its ranks of the job are in `phase`.
  void SayAll(const std::string& worker, const std::string& job_id, v1::RankPhase phase) {
    v1::AttemptStatus status = StatusOf(job_id, Job(job_id).attempt());
    for (const v1::RankSlot& slot : Current(Job(job_id)).slots()) {
      if (slot.worker() == worker) {
        AddRank(status, slot.rank(), phase);
      }
    }
    status.set_ended(phase == v1::RANK_PHASE_EXITED);
    Say(worker, status);
  }
  void Wait(absl::Duration time) {
    now += time;
    Feed(Tick{});
  }
  // Connects two workers of one slot, and runs a job of two ranks on them until it is in this state.
  void Run(v1::JobState until) {
    Connect("a", 1);
    Connect("b", 1);
    Feed(SubmitOf("job", 2));
    for (const v1::RankPhase phase : {v1::RANK_PHASE_SPAWNED, v1::RANK_PHASE_READY}) {
      if (Job().state() != until) {
        SayAll("a", "id-job", phase);
        SayAll("b", "id-job", phase);
      }
    }
  }

  const v1::Job& Job(const std::string& id = "id-job") const { return state.jobs.at(id).job; }

  // "FAILED RankKilled".
  std::string StateAndReason() const {
    return absl::StrCat(proto::ValueName(Job().state()), " ", Job().reason());
  }

  // Commits to the store the events since the last Save.
  template <typename Store>
  absl::Status Save(Store& store) {
    std::vector<const JobEntry*> rows;
    for (const auto& [id, entry] : state.jobs) {
      rows.push_back(&entry);
    }
    const auto first = events.begin() + static_cast<ptrdiff_t>(std::exchange(saved, events.size()));
    return store.Commit({first, events.end()}, rows);
  }

  State state;
  absl::Time now = kStart;
  std::vector<v1::Event> events;
  int sessions = 0;
  size_t saved = 0;  // events
};

// A notice of worker "a" about the driver's job; the caller fills in what is noticed.
inline CheckpointNoticed Noticed(uint64_t number = 0) {
  CheckpointNoticed noticed{.worker = "a"};
  *noticed.notice.mutable_id() = StatusOf("id-job").id();
  noticed.notice.set_number(number);
  return noticed;
}

// A rank that has failed because of `cause`.
inline v1::AttemptStatus Failed(int rank, const v1::Cause& cause, bool exited = true) {
  v1::AttemptStatus out = StatusOf("id-job");
  v1::RankStatus& status = AddRank(out, rank, v1::RANK_PHASE_STEPPING);
  status.set_step(7);
  status.set_exited(exited);
  *status.mutable_cause() = cause;
  out.set_ended(exited);
  return out;
}

}  // namespace tandem::controller
