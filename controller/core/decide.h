// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/core/state.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::controller {

// The core of the controller: pure functions over State (state.h), which has the jobs as they are stored and
// the workers as they were observed. In the order of a call:
//
//   Observe   records what a worker reported (observe.cc)
//   Decide    derives events (decide.cc, with causes.h, checkpoints.h and placement.h)
//   Apply     makes one event true (apply.cc)
//   Step      does all three until nothing more follows
//
// AssignmentsFor (assignments.h) and ProgressOf (progress.h) read a state. The engine (controller/engine.h)
// calls Step, commits the events, and then publishes what follows.

// A job that a user submits. Both specs have been validated.
struct Submit {
  std::string id;  // for the new job
  std::string owner;
  std::string request_id;  // empty: none
  v1::JobSpec submitted;
  v1::JobSpec resolved;
  std::string resolved_digest;
};

struct Cancel {
  std::string job;     // id or live name
  std::string reason;  // CamelCase
  std::string actor;
  bool checkpoint = false;  // save a checkpoint first
};

// A request for a checkpoint.
struct AskCheckpoint {
  std::string job;  // id or live name
  std::string actor;
};

struct WorkerHello {
  std::string session;
  v1::Hello hello;
  std::set<AttemptKey> unknown = {};  // running attempts in its inventory that the store does not have
};

struct WorkerDisconnected {
  std::string worker;
  std::string session;   // ignored unless it is the worker's current session
  absl::Time last_seen;  // the time of its last message; it counts as away from then on
};

struct AttemptReport {
  std::string worker;
  v1::AttemptStatus status;
};

// The worker was asked to end: its ranks end too, and it accepts no others.
struct WorkerDraining {
  std::string worker;
};

struct CheckpointNoticed {
  std::string worker;
  v1::CheckpointNotice notice;
};

struct Tick {
  absl::Time awake_since = absl::InfinitePast();  // since when this controller has run without a standstill
};

using Input = std::variant<Submit, Cancel, AskCheckpoint, WorkerHello, WorkerDisconnected, WorkerDraining,
                           AttemptReport, CheckpointNoticed, Tick>;

// What `input` leads to.
struct Decision {
  std::vector<v1::Event> events;  // without seq
  absl::Status status;            // of Submit, Cancel and AskCheckpoint
  std::string job_id;             // the job of Submit, Cancel and AskCheckpoint
  size_t num_own = 0;             // of Step: the first num_own events were caused by the input itself
};

// Records what a worker reports about itself. None of it is stored: a worker that reconnects sends it again.
void Observe(const Input& input, absl::Time now, State& state);

// Whether a decision may follow from the report, because it says more than how far the ranks are. Most
// reports do not: every worker sends one a second. (Decisions that depend on time alone follow from Tick.)
// Call before Observe.
bool IsNews(const State& state, const AttemptReport& report);

// Returns the events that follow from `input` and from what was observed before. Pure: no clock, no lock, no
// RPC; the same arguments give the same events. Call after Observe(input).
Decision Decide(const State& state, const Input& input, absl::Time now);

// Applies one event to the state. It decides nothing, so replaying the event log gives the same state even if
// Decide has changed since. Changes only what is stored (jobs, last_seq), never what was observed.
void Apply(const v1::Event& event, State& state);

// Calls Observe, then Decide and Apply until nothing more follows. The returned events have their seq. A
// report that is no news (IsNews) is only observed. After any other report on a live attempt, the other jobs
// are decided only if something follows for its own job, so that the cost of a report does not grow with the
// number of jobs.
Decision Step(const Input& input, absl::Time now, State& state);

// AlreadyExists if `submit` has the request id of the job `known` but a different spec.
absl::Status CheckSameSpec(const v1::Job& known, const Submit& submit);

// The kind of an event, its name in the store and in failpoints: "submitted", "admitted", "starting",
// "running", "stopping", "finished" (every end), "waiting", "checkpoint", "checkpoint_warning",
// "checkpoint_requested", "checkpoint_answered", "training_warning", "worker". Empty for an event that this
// build does not know.
std::string KindOf(const v1::Event& event);
bool IsKnownKind(const std::string& kind);

inline constexpr int kEventSchema = 1;

}  // namespace tandem::controller
