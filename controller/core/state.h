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
  absl::Time since;     // connected since, or away since: then, its last message
  std::string session;  // of the last connection
  uint64_t incarnation = 0;
  absl::Duration clock_ahead;  // of its clock, against ours
  std::string build;
  v1::Inventory inventory;                           // without its attempts
  std::map<AttemptKey, v1::AttemptStatus> attempts;  // its last words on each, times by our clock
  std::map<AttemptKey, absl::Time> heard;            // and when they came
  std::map<AttemptKey, absl::Time> peer_lost;        // when a rank first said that it has lost a peer
  std::set<AttemptKey> missing;  // live attempts that it should have listed when it returned, and did not
  std::set<AttemptKey> reborn;   // live attempts whose ranks died with its former incarnation
};

struct Limits {
  absl::Duration worker_timeout = absl::Seconds(30);    // away for longer: WorkerLost
  absl::Duration start_timeout = absl::Minutes(15);     // from admission to Ready of every rank
  absl::Duration settle = absl::Milliseconds(1500);     // what STOPPING waits for ranks that cannot be asked
  absl::Duration cause_wait = absl::Milliseconds(500);  // from a lost peer to its own last words
  size_t live_jobs = 10000;                             // more are refused
};

struct State {
  Limits limits;
  absl::Time
      awake_since;  // this controller has run without standing still; who is away counts as away from then on
  int64_t last_seq = 0;  // of the last event
  JobTable jobs;         // the live ones, and those that ended since the last Prune; changed by Apply alone
  std::map<std::string, WorkerEntry> workers;  // every one seen since the start that has not left
};

AttemptKey CurrentAttempt(const v1::Job& job);

// The current attempt. Requires job.attempt() > 0.
const v1::Attempt& Current(const v1::Job& job);

// The workers of the current attempt, in name order.
std::vector<std::string> WorkersOf(const v1::Job& job);

// Whether (job, attempt) is what `state` wants or still waits for.
bool IsLive(const State& state, const AttemptKey& key);

// Whether `key` is live and has ranks on `worker`.
bool RunsOn(const State& state, const AttemptKey& key, const std::string& worker);

// The live job of that id or name, or null.
const JobEntry* FindLive(const State& state, const std::string& id_or_name);

// What `worker` last said about an attempt, or about one rank of it; null where it said nothing.
const v1::AttemptStatus* StatusOf(const State& state, const std::string& worker, const AttemptKey& key);
const v1::RankStatus* StatusOf(const State& state, const v1::RankSlot& slot, const AttemptKey& key);

// A worker as users see it; last_seen is the caller's to fill in.
v1::Worker Describe(const State& state, const std::string& worker);

// Why `worker` takes no ranks, CamelCase; empty where it does.
std::string WhyNotSchedulable(const State& state, const WorkerEntry& worker);

// Whether the worker has ended as it was asked to, and had no rank left: nobody needs to look for it.
bool HasLeft(const WorkerEntry& worker);

// Drops the ended jobs, and the workers that have left; one that has ranks in a live job, whose end it has
// told, stays until then. Call when the end of those jobs is durable.
void Prune(State& state);

}  // namespace tandem::controller
