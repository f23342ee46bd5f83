#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "worker/state.h"

namespace tandem::worker {

// The changes of WorkerState. Apply makes one true and decides nothing.

// The session.
struct SessionOpened {
  absl::Time at;
  std::string data_address;
};
struct SessionClosed {};
struct ControllerHeard {
  absl::Time at;
};
struct Welcomed {
  int64_t term = 0;
  std::string store_id;
  absl::Duration orphan_timeout;
  absl::Duration beat;
};
struct SessionUnfit {  // this controller must not be listened to
  std::string why;
};
struct WorkerRefused {  // for good
  std::string why;
};
struct Acked {
  uint64_t seq = 0;
};
struct HelloSent {};
struct MessageSent {};
struct SessionDropped {};
struct BeatDue {};
struct BeatDone {};
struct DeadlineRenewed {};

// Attempts.
struct AttemptAccepted {
  v1::Assignment assignment;
};
struct AssignmentChanged {
  v1::Assignment assignment;
};
struct PrepareStarted {
  AttemptKey attempt;
};
struct AttemptPrepared {
  AttemptKey attempt;
  std::vector<InstructionName> program;
};
struct AttemptRefused {
  AttemptKey attempt;
  v1::Cause cause;
};
struct StopDecided {  // the earlier of two wins
  AttemptKey attempt;
  Stop stop;
};
struct RequestPassedOn {
  AttemptKey attempt;
  uint64_t request = 0;
};
struct RequestDone {
  AttemptKey attempt;
  uint64_t request = 0;
  std::string error;
};
struct StatusDue {
  AttemptKey attempt;
};
struct StatusSent {
  AttemptKey attempt;
};
struct RecordingStarted {
  AttemptKey attempt;
};
struct AttemptEnded {
  AttemptKey attempt;
};
struct AttemptForgotten {
  AttemptKey attempt;
};
struct RecordsRemoved {};

// Ranks.
struct SpawnStarted {
  RankKey rank;
};
struct RankStarted {
  RankKey rank;
  int64_t pid = 0;
};
struct RankReady {
  RankKey rank;
  v1::Ready ready;
  absl::Time time;
};
struct RankFailed {
  RankKey rank;
  v1::Cause cause;
};
struct RankFinished {
  RankKey rank;
  absl::Time time;
};
struct RankSampled {
  RankKey rank;
  PageSample sample;
  absl::Time time;
};
struct StopSent {
  RankKey rank;
  absl::Time kill_at;
};
struct KillSent {
  RankKey rank;
};
struct RankGone {
  RankKey rank;
  std::optional<v1::Cause> cause;
  absl::Time time;
};

// Rendezvous.
struct ValueKnown {
  AttemptKey attempt;
  std::string key;
  Value value;
};
struct ValueWanted {
  RankKey rank;
  std::string key;
};
struct ValuesSent {  // what was unsent is told
  AttemptKey attempt;
};
struct GetsAsked {
  AttemptKey attempt;
};
struct AnswersSent {
  AttemptKey attempt;
};

// Checkpoints, logs, the end.
struct CheckpointSeen {
  AttemptKey attempt;
  v1::CheckpointNotice message;
};
struct NoticeSent {
  uint64_t number = 0;
  uint64_t seq = 0;
  absl::Time time;
};
struct UploadAsked {
  v1::UploadRequest request;
};
struct UploadsStarted {};
struct ShutdownBegun {
  absl::Time time;
};
struct ExitSent {};

using Event =
    std::variant<SessionOpened, SessionClosed, ControllerHeard, Welcomed, SessionUnfit, WorkerRefused, Acked,
                 HelloSent, MessageSent, SessionDropped, BeatDue, BeatDone, DeadlineRenewed, AttemptAccepted,
                 AssignmentChanged, PrepareStarted, AttemptPrepared, AttemptRefused, StopDecided,
                 RequestPassedOn, RequestDone, StatusDue, StatusSent, RecordingStarted, AttemptEnded,
                 AttemptForgotten, RecordsRemoved, SpawnStarted, RankStarted, RankReady, RankFailed,
                 RankFinished, RankSampled, StopSent, KillSent, RankGone, ValueKnown, ValueWanted, ValuesSent,
                 GetsAsked, AnswersSent, CheckpointSeen, NoticeSent, UploadAsked, UploadsStarted,
                 ShutdownBegun, ExitSent>;

}  // namespace tandem::worker
