// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "controller/core/job_table.h"
#include "proto/protocol.h"
#include "tandem/v1/state.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

using proto::AttemptKey;
using proto::IdOf;
using proto::KeyOf;

// A worker as it described itself. Never stored: the worker sends its state again when it reconnects.
struct WorkerEntry {
  bool connected = false;
  absl::Time since;     // when it connected; if it is away: when its last message came
  std::string session;  // of the last connection
  uint64_t incarnation = 0;
  absl::Duration clock_ahead;  // how far its clock is ahead of the controller's
  std::string build;
  v1::Inventory inventory;  // without its attempts
  std::map<AttemptKey, v1::AttemptStatus>
      attempts;                                // its last report on each; times are by the controller's clock
  std::map<AttemptKey, absl::Time> heard;      // when that report came
  std::map<AttemptKey, absl::Time> peer_lost;  // when a rank first reported a lost peer
  std::set<AttemptKey> missing;  // live attempts that its last Hello lacked though it must have had them
  std::set<AttemptKey> unknown;  // attempts that it runs though the store lacks them: they go on
  std::set<AttemptKey> killed_by_restart;  // live attempts whose ranks died with its previous daemon
};

struct Limits {
  absl::Duration worker_timeout = absl::Seconds(30);  // a worker that is away for longer is lost
  // From the admission of a job until every rank is ready. A rank that loads a checkpoint may take longer, as
  // long as it reads something within this time.
  absl::Duration start_timeout = absl::Minutes(15);
  absl::Duration settle = absl::Milliseconds(1500);  // how long STOPPING waits for unreachable ranks
  // After a rank has lost a peer: for the report of the peer's end.
  absl::Duration cause_wait = absl::Milliseconds(500);
  size_t live_jobs = 10000;  // beyond it, submitted jobs are refused
};

struct State {
  Limits limits;
  absl::Time awake_since;  // when the last standstill of this controller ended; absences count from then at
                           // the earliest
  int64_t last_seq = 0;    // of the last event
  JobTable jobs;           // live jobs, and jobs that ended since the last Prune; only Apply changes them
  std::map<std::string, WorkerEntry> workers;  // workers seen since the start that have not left
};

AttemptKey CurrentAttempt(const v1::Job& job);

// The current attempt. Requires job.attempt() > 0.
const v1::Attempt& Current(const v1::Job& job);

// The workers of the current attempt, sorted by name.
std::vector<std::string> WorkersOf(const v1::Job& job);

// Whether `key` is the current attempt of a job that has ranks (HasRanks).
bool IsLive(const State& state, const AttemptKey& key);

// Whether `key` is live and its ranks still need the rendezvous: they have not all been ready yet.
bool IsConnecting(const State& state, const AttemptKey& key);

// Whether `key` is live and has ranks on `worker`.
bool RunsOn(const State& state, const AttemptKey& key, const std::string& worker);

// Returns the live job of that id or name, or null.
const JobEntry* FindLive(const State& state, const std::string& id_or_name);

// Return the last report of a worker on an attempt, and on one rank of it; null if there is none.
const v1::AttemptStatus* StatusOf(const State& state, const std::string& worker, const AttemptKey& key);
const v1::RankStatus* StatusOf(const State& state, const v1::RankSlot& slot, const AttemptKey& key);

// Describes a worker for users; the caller fills in last_seen.
v1::Worker Describe(const State& state, const std::string& worker);

// Returns the reason why `worker` accepts no ranks (CamelCase); empty if it accepts ranks.
std::string WhyNotSchedulable(const State& state, const WorkerEntry& worker);

// Whether the worker was asked to end and has left without a running rank, so that its absence is no fault.
bool HasLeft(const WorkerEntry& worker);

// Drops the ended jobs and the workers that have left. Of workers that are away, keeps the 1,000 newest
// absences, and every worker with ranks in a live job. Call after the commit of the state.
void Prune(State& state);

}  // namespace tandem::controller
