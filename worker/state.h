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
#include "proto/protocol.h"
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

// One sample of a rank's shared page.
struct PageSample {
  v1::RankPhase phase = v1::RANK_PHASE_UNSPECIFIED;
  int64_t step = 0;
  int64_t instruction = -1;
  // Since the last instruction finished; infinite: none has.
  absl::Duration since_progress = absl::InfiniteDuration();
  std::vector<uint64_t> collectives;  // number started, by communicator (SharedPage)
  bool stopped = false;               // whether a signal or a debugger has stopped the process
};

enum class Life { kWaiting, kStarting, kRunning, kGone };

struct RankState {
  v1::RankStart start;
  Life life = Life::kWaiting;
  int64_t pid = 0;
  std::optional<v1::Ready> ready;
  bool finished = false;  // it has sent Finished
  absl::Time ready_at = absl::InfinitePast();
  absl::Time finished_at = absl::InfinitePast();
  absl::Time gone_at = absl::InfinitePast();
  std::optional<v1::Cause> failed;  // its Failed message, which outranks the exit that follows
  bool stop_sent = false;           // the daemon asked it to stop
  bool kill_sent = false;           // the daemon sent SIGKILL
  absl::Time kill_at = absl::InfiniteFuture();
  std::optional<v1::Cause> cause;  // set when it is gone, unless it finished and exited with 0
  PageSample sample;
  absl::Time sampled_at = absl::InfinitePast();  // the first sample of this step
  // When it last finished an instruction, started a collective, a step or a phase; past: unknown.
  absl::Time progressed_at = absl::InfinitePast();
  double step_seconds = 0;  // mean over the steps between the last two samples with a new step
};

// A decision to end the local ranks of an attempt.
struct Stop {
  std::string reason;    // of the ranks' causes, in CamelCase: "Cancelled"
  absl::Time begin;      // when the ranks are asked to stop
  absl::Duration grace;  // from then to SIGKILL
};

// How far an attempt is prepared before its ranks start. A stop or a refusal ends the preparation.
enum class Preparation { kNew, kChecking, kChecked, kRecording, kReady };

// An attempt with ranks on this worker, from the assignment to the record of its end.
struct AttemptState {
  v1::Assignment assignment;
  std::string store_id;  // of the controller that assigned it
  Preparation preparation = Preparation::kNew;
  std::string looking_at;  // the path that Check is inspecting; empty: none yet, or no longer any
  absl::Time check_by = absl::InfiniteFuture();  // when the attempt is refused because that path hangs
  InstructionNames program;                      // empty: unknown
  std::optional<v1::Cause> refused;
  std::map<int, RankState> ranks;  // by rank
  std::optional<Stop> stop;
  bool recording = false;  // RecordEnd was given; its answer has not arrived

  LocalRendezvous rendezvous;  // empty once every rank of the job has been ready (Assignment.connected)

  bool unknown = false;       // the connected controller does not know it
  bool drained = false;       // a rank was asked to save and end, since this daemon ends
  uint64_t request_sent = 0;  // the last Assignment.request that was sent to a rank
  uint64_t request_done = 0;  // the last request that a rank has answered
  std::string request_error;  // why that request failed; empty: it succeeded
  bool dirty = true;          // its status is to be sent to the controller now
};

// An ended attempt whose end the controller has not acknowledged.
struct EndedAttempt {
  v1::AttemptStatus status;
  bool dirty = true;
};

struct Notice {
  AttemptKey attempt;
  std::string store_id;          // of the controller to which it is sent
  v1::CheckpointNotice message;  // id and number are added by MessageOf
  uint64_t number = 0;
  uint64_t seq = 0;  // of its message in this session; 0: not sent yet
};

struct SessionState {
  bool open = false;
  bool hello_sent = false;
  bool drain_sent = false;  // the controller was told that this worker drains
  bool welcomed = false;
  absl::Time heard_at = absl::InfinitePast();  // when the last message arrived or the stream opened
  uint64_t next_seq = 1;
  std::string drop;  // why to close the session and open another; empty: do not
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
  std::string data_address;  // at which ranks on other workers reach the ranks here; in the last Hello
  std::string store_id;      // of the last controller that sent Welcome, which assigned the live attempts
  int64_t highest_term = 0;  // of that controller
  absl::Duration orphan_timeout = absl::InfiniteDuration();
  absl::Duration heartbeat_interval = absl::Seconds(1);
  bool deadline_stale = false;  // a message has arrived; the orphan deadlines are to be renewed
  bool heartbeat_due = false;
  std::map<AttemptKey, AttemptState> live;
  std::map<AttemptKey, EndedAttempt> ended;
  std::vector<AttemptKey> forgotten;                // whose records are still to be removed from disk
  std::vector<Notice> notices;                      // not acknowledged, oldest first
  uint64_t last_notice = 0;                         // number of the newest notice
  std::vector<v1::UploadRequest> uploads;           // requested, not yet started
  absl::Time shutdown_at = absl::InfiniteFuture();  // when asked to end: the time at which ranks are stopped
  std::optional<std::string> fatal;                 // why the daemon must end
  bool exit_sent = false;
};

// Whether the daemon was asked to end and still waits until the jobs with ranks here have saved and ended.
bool IsDraining(const WorkerState& state, absl::Time now);

// Both return null if the attempt is not live or has no such rank.
AttemptState* FindAttempt(WorkerState& state, const AttemptKey& key);
RankState* FindRank(WorkerState& state, const RankKey& key);

// Whether the ranks are to save a checkpoint and end, at a step on which they agree: one of them has been
// sent the request.
bool StopsAfterCheckpoint(const AttemptState& attempt);

// The status to send to the controller at `now`.
v1::AttemptStatus StatusOf(const AttemptKey& key, const AttemptState& attempt, absl::Time now);

v1::CheckpointNotice MessageOf(const Notice& notice);

// The largest number of notices (the newest unacknowledged ones) in an inventory, so that it fits in a Hello.
inline constexpr size_t kMostNoticesInInventory = 100;
v1::Inventory InventoryOf(const WorkerState& state, absl::Time now);

}  // namespace tandem::worker
