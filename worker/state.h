// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/attempt_key.h"
#include "tandem/v1/trainer.pb.h"
#include "tandem/v1/workers.pb.h"
#include "worker/instruction_names.h"
#include "worker/local_rendezvous.h"

namespace tandem::worker {

// The state of the worker daemon, as plain data. Only Step (step.h) changes it.

using proto::AttemptKey;
using proto::IdOf;
using proto::KeyOf;

struct RankKey {
  AttemptKey attempt;
  int rank = 0;
  auto operator<=>(const RankKey&) const = default;
};

// One look at the shared page of a rank.
struct PageSample {
  v1::RankPhase phase = v1::RANK_PHASE_UNSPECIFIED;
  int64_t step = 0;
  int64_t instruction = -1;
  absl::Duration since_progress = absl::InfiniteDuration();  // since its last instruction; infinite: none yet
  std::vector<uint64_t> collectives;  // started, by communicator, as SharedPage has them
  bool stopped = false;               // the process, by a signal or a debugger
};

enum class Life { kWaiting, kStarting, kRunning, kGone };

struct RankState {
  v1::RankStart start;
  Life life = Life::kWaiting;
  int64_t pid = 0;
  std::optional<v1::Ready> ready;
  bool finished = false;  // it said so
  absl::Time ready_at = absl::InfinitePast();
  absl::Time finished_at = absl::InfinitePast();
  absl::Time gone_at = absl::InfinitePast();
  std::optional<v1::Cause> failed;  // its own words; outranks the exit that follows
  bool stop_sent = false;           // the daemon asked it to stop
  bool kill_sent = false;           // the daemon sent SIGKILL
  absl::Time kill_at = absl::InfiniteFuture();
  std::optional<v1::Cause> cause;  // once gone; none if it finished and exited with 0
  PageSample sample;
  absl::Time sampled_at = absl::InfinitePast();  // the first look at this step
  absl::Time progressed_at =
      absl::InfinitePast();  // finished an instruction, started a collective, …; past: unknown
  double step_seconds = 0;   // between the last two samples in which the step rose
};

// The daemon is ending the local ranks of an attempt.
struct Stop {
  std::string reason;    // CamelCase, of the ranks' causes: "Cancelled"
  absl::Time begin;      // when the ranks are asked
  absl::Duration grace;  // from then to SIGKILL
};

// The phases of an attempt before its ranks start; one that is stopped goes no further.
enum class Preparation { kNew, kChecking, kChecked, kRecording, kReady };

// An attempt of which this worker runs ranks, from the assignment to the record of its end.
struct AttemptState {
  v1::Assignment assignment;
  std::string store_id;  // of the controller that assigned it
  Preparation preparation = Preparation::kNew;
  std::string looking_at;  // while it is checked: the path; empty: none yet, or none any more
  absl::Time check_by = absl::InfiniteFuture();  // when that path counts as one that hangs
  InstructionNames program;                      // empty if it could not be worked out
  std::optional<v1::Cause> refused;
  std::map<int, RankState> ranks;  // by rank
  std::optional<Stop> stop;
  bool recording = false;  // of the end, on disk

  LocalRendezvous rendezvous;  // empty once every rank of the job has been ready (Assignment.connected)

  bool unknown = false;       // to the controller that is connected
  bool drained = false;       // a rank has been asked to end with this daemon
  uint64_t request_sent = 0;  // Assignment.request passed on to a rank
  uint64_t request_done = 0;
  std::string request_error;  // why request_done could not be done; empty: it was
  bool dirty = true;          // the controller should hear of it now
};

// An end that the controller has not acknowledged.
struct EndedAttempt {
  v1::AttemptStatus status;
  bool dirty = true;
};

struct Notice {
  AttemptKey attempt;
  std::string store_id;          // of the controller that is to hear it
  v1::CheckpointNotice message;  // without id and number
  uint64_t number = 0;
  uint64_t seq = 0;  // of the message with it in this session; 0: not sent yet
};

struct SessionState {
  bool open = false;
  bool hello_sent = false;
  bool drain_sent = false;  // to the controller
  bool welcomed = false;
  absl::Time heard_at = absl::InfinitePast();  // the controller, or the opening
  uint64_t next_seq = 1;
  std::string drop;  // not empty: close it and dial again, because
};

struct Settings {
  std::string worker_id;
  uint64_t incarnation = 0;
  std::string hostname;
  std::string build;
  std::vector<v1::Slot> slots;
  std::string gpus_unused;  // as in v1::Worker
};

struct WorkerState {
  Settings settings;
  SessionState session;
  std::string data_address;  // at which ranks on other workers reach ours; sent with the last Hello
  std::string store_id;      // of the controller that was last welcome: the live attempts are its
  int64_t highest_term = 0;  // of it
  absl::Duration orphan_timeout = absl::InfiniteDuration();
  absl::Duration heartbeat_interval = absl::Seconds(1);
  bool deadline_stale = false;  // the controller was heard; the pages do not say so yet
  bool heartbeat_due = false;
  std::map<AttemptKey, AttemptState> live;
  std::map<AttemptKey, EndedAttempt> ended;
  std::vector<AttemptKey> forgotten;                // their records are still on disk
  std::vector<Notice> notices;                      // of checkpoints, not acknowledged, oldest first
  uint64_t last_notice = 0;                         // number of the newest
  std::vector<v1::UploadRequest> uploads;           // asked, not yet started
  absl::Time shutdown_at = absl::InfiniteFuture();  // asked to end: when what still runs is stopped
  std::optional<std::string> fatal;                 // why it must end
  bool exit_sent = false;
};

// Whether the daemon was asked to end and waits for the jobs with ranks here to save and end.
bool IsDraining(const WorkerState& state, absl::Time now);

// Null if it is not live.
AttemptState* FindAttempt(WorkerState& state, const AttemptKey& key);
RankState* FindRank(WorkerState& state, const RankKey& key);

// Whether one rank was asked that all ranks save a checkpoint and end; the ranks agree on the step.
bool StopsAfterCheckpoint(const AttemptState& attempt);

// The status that the controller is sent at `now`.
v1::AttemptStatus StatusOf(const AttemptKey& key, const AttemptState& attempt, absl::Time now);

v1::CheckpointNotice MessageOf(const Notice& notice);

// How many of the newest unacknowledged notices an inventory holds: they all fit in a Hello.
inline constexpr size_t kMostNoticesInInventory = 100;
v1::Inventory InventoryOf(const WorkerState& state, absl::Time now);

}  // namespace tandem::worker
