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
#include "proto/attempt_key.h"
#include "tandem/v1/state.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

using proto::AttemptKey;
using proto::IdOf;
using proto::KeyOf;

// A worker as it described itself. Never stored: it resends its state when it returns.
struct WorkerEntry {
  bool connected = false;
  absl::Time since;     // if connected: since when; if away: the time of its last message
  std::string session;  // of the last connection
  uint64_t incarnation = 0;
  absl::Duration clock_ahead;  // how far its clock is ahead of ours
  std::string build;
  v1::Inventory inventory;                           // without its attempts
  std::map<AttemptKey, v1::AttemptStatus> attempts;  // its last report on each, with times by our clock
  std::map<AttemptKey, absl::Time> heard;            // when that report came
  std::map<AttemptKey, absl::Time> peer_lost;        // when a rank first reported a lost peer
  std::set<AttemptKey> missing;  // live attempts that it should have listed when it returned, and did not
  std::set<AttemptKey> unknown;  // that it runs, and of which the store has nothing: they go on
  std::set<AttemptKey> killed_by_restart;  // live attempts whose ranks died with its former incarnation
};

struct Limits {
  absl::Duration worker_timeout = absl::Seconds(30);  // a worker that is away for longer is lost
  // From admission to Ready of every rank; a rank that loads a checkpoint has this long after each read.
  absl::Duration start_timeout = absl::Minutes(15);
  absl::Duration settle = absl::Milliseconds(1500);     // how long STOPPING waits for unreachable ranks
  absl::Duration cause_wait = absl::Milliseconds(500);  // how long to wait for the report of a lost peer
  size_t live_jobs = 10000;                             // more are refused
};

struct State {
  Limits limits;
  absl::Time
      awake_since;       // since when this controller has run without a standstill; absences count from then
  int64_t last_seq = 0;  // of the last event
  JobTable jobs;         // the live ones, and those that ended since the last Prune; changed by Apply alone
  std::map<std::string, WorkerEntry> workers;  // all workers seen since the start that have not left
};

AttemptKey CurrentAttempt(const v1::Job& job);

// The current attempt. Requires job.attempt() > 0.
const v1::Attempt& Current(const v1::Job& job);

// The workers of the current attempt, in name order.
std::vector<std::string> WorkersOf(const v1::Job& job);

// Whether (job, attempt) is what `state` wants or still waits for.
bool IsLive(const State& state, const AttemptKey& key);

// Whether `key` is live and its ranks still find each other: not all of them have been ready.
bool IsConnecting(const State& state, const AttemptKey& key);

// Whether `key` is live and has ranks on `worker`.
bool RunsOn(const State& state, const AttemptKey& key, const std::string& worker);

// The live job of that id or name, or null.
const JobEntry* FindLive(const State& state, const std::string& id_or_name);

// The last report of `worker` on an attempt, or on one rank of it; null if there is none.
const v1::AttemptStatus* StatusOf(const State& state, const std::string& worker, const AttemptKey& key);
const v1::RankStatus* StatusOf(const State& state, const v1::RankSlot& slot, const AttemptKey& key);

// A worker as users see it; the caller fills in last_seen.
v1::Worker Describe(const State& state, const std::string& worker);

// Why `worker` accepts no ranks, in CamelCase; empty if it accepts ranks.
std::string WhyNotSchedulable(const State& state, const WorkerEntry& worker);

// Whether the worker has ended on request and had no rank left, so that it is not missing.
bool HasLeft(const WorkerEntry& worker);

// Drops the ended jobs, the workers that have left and, beyond 1,000 that are away, those that are away for
// longest. One that had ranks in a job that is still live stays until that ends. Call when it is durable.
void Prune(State& state);

}  // namespace tandem::controller
