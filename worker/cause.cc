// SPDX-License-Identifier: Apache-2.0
#include "worker/cause.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "link/exit_code.h"
#include "platform/signal_name.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::worker {
namespace {

using link::ExitCode;

void SetSlot(const std::string& worker, const RankState& rank, v1::Cause& cause) {
  cause.set_rank(rank.start.rank());
  cause.set_worker(worker);
}

// Names the last finished instruction of a rank that died; nothing else of it is known.
void SetLastInstruction(const AttemptState& attempt, const RankState& rank, v1::Cause& cause) {
  const int64_t index = rank.sample.instruction;
  if (index >= 0 && index < attempt.program.size()) {
    cause.set_last_instruction(attempt.program.Text(index));
  }
}

struct Verdict {
  v1::FailureClass failure;
  const char* reason;
  const char* meaning;
  bool log_says_more = false;
};

// Returns the class and reason of an exit code for which there is no Failed message.
Verdict VerdictOf(int exit_code) {
  if (exit_code >= 64 && exit_code <= 78 && exit_code != static_cast<int>(ExitCode::kPreempted)) {
    return {v1::FAILURE_CLASS_USER, proto::ReasonCode("UserError"), "an error of the job; its log says which",
            true};
  }
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kDone:
      return {v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("ExitedEarly"), "before it had finished"};
    case ExitCode::kPreempted:
      return {v1::FAILURE_CLASS_PREEMPTED, proto::ReasonCode("Preempted"),
              "a worker of the job was asked to end"};
    case ExitCode::kPeerLost:
      return {v1::FAILURE_CLASS_PEER_LOST, proto::ReasonCode("PeerLost"), "it lost another rank"};
    case ExitCode::kStopped:
      return {v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("StoppedUnasked"),
              "stopped, though the daemon had not asked"};
    case ExitCode::kFenced:
      return {v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("Fenced"),
              "it had not heard from a controller for too long"};
    case ExitCode::kNumeric:
      return {v1::FAILURE_CLASS_NUMERIC, proto::ReasonCode("NonFinite"), "loss or gradients are not finite"};
    case ExitCode::kOutOfMemory:
      return {v1::FAILURE_CLASS_OUT_OF_MEMORY, proto::ReasonCode("OutOfMemory"), "out of memory"};
    case ExitCode::kUserError:
      break;  // handled above
  }
  return {v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("RankExited"), "its log says more", true};
}

v1::Cause MakeCause(v1::FailureClass failure, const std::string& reason, const std::string& message) {
  v1::Cause cause;
  cause.set_class_(failure);
  cause.set_reason(reason);
  cause.set_message(message);
  return cause;
}

v1::Cause Requested(const std::string& reason, const std::string& message) {
  return MakeCause(v1::FAILURE_CLASS_REQUESTED, reason.empty() ? proto::ReasonCode("Stopped") : reason,
                   message);
}

std::string HowItEnded(int rank, const Exit& exit) {
  return exit.signal != 0 ? absl::StrCat("rank ", rank, " was killed by signal ", exit.signal, " (",
                                         platform::SignalName(exit.signal), ")")
                          : absl::StrCat("rank ", rank, " exited with code ", exit.exit_code);
}

// For a rank that stopped after a complete step.
std::string StoppedAfter(const RankState& rank) {
  return absl::StrCat("rank ", rank.start.rank(), " stopped after step ", rank.sample.step);
}

v1::Cause FromExit(const AttemptState& attempt, const RankState& rank, const Exit& exit) {
  const int number = rank.start.rank();
  const std::string where = Whereabouts(attempt, rank.sample);
  const std::string reason = attempt.stop ? attempt.stop->reason : "";
  if (exit.signal != 0) {
    // The daemon sends no signal other than SIGKILL, so any other came from elsewhere, even within the grace
    // of a stop.
    if (exit.signal == SIGKILL && rank.kill_sent && !exit.before_kill) {
      return Requested(reason, absl::StrCat("rank ", number, " was stopped with SIGKILL ", where));
    }
    const bool out_of_memory = !exit.out_of_memory.empty();
    v1::Cause cause = MakeCause(
        out_of_memory ? v1::FAILURE_CLASS_OUT_OF_MEMORY : v1::FAILURE_CLASS_INFRASTRUCTURE,
        out_of_memory ? proto::ReasonCode("OutOfMemory") : proto::ReasonCode("RankKilled"),
        absl::StrCat(HowItEnded(number, exit), " ", where, out_of_memory ? ": " : "", exit.out_of_memory));
    cause.set_after_stop(rank.stop_sent && exit.signal != SIGKILL);
    return cause;
  }
  const Verdict verdict = VerdictOf(exit.exit_code);
  if (exit.exit_code == static_cast<int>(ExitCode::kPreempted) && StopsAfterCheckpoint(attempt)) {
    const bool saved = attempt.assignment.resolved().checkpoint().has_directory();
    return Requested(attempt.assignment.reason(),
                     absl::StrCat(StoppedAfter(rank), saved ? ", with a checkpoint" : ""));
  }
  if ((rank.stop_sent || rank.kill_sent) && verdict.failure == v1::FAILURE_CLASS_INFRASTRUCTURE) {
    return Requested(reason, absl::StrCat("rank ", number, " was stopped ", where));
  }
  const std::string how = verdict.failure == v1::FAILURE_CLASS_PREEMPTED
                              ? StoppedAfter(rank)
                              : absl::StrCat(HowItEnded(number, exit), " ", where);
  v1::Cause cause = MakeCause(verdict.failure, verdict.reason, absl::StrCat(how, ": ", verdict.meaning));
  if (verdict.log_says_more) {
    absl::StrAppend(cause.mutable_message(), ": `tandem logs ", attempt.assignment.id().job_id(), " --rank ",
                    number, "`");
  }
  return cause;
}

}  // namespace

std::optional<v1::Cause> CauseOfExit(const std::string& worker, const AttemptState& attempt,
                                     const RankState& rank, const Exit& exit, absl::Time now) {
  if (!rank.failed && rank.finished && exit == Exit{}) {
    return std::nullopt;
  }
  v1::Cause cause;
  if (rank.failed) {
    cause = *rank.failed;
  } else {
    cause = FromExit(attempt, rank, exit);
    *cause.mutable_time() = proto::ToProto(now);
    SetSlot(worker, rank, cause);
    cause.set_step(rank.sample.step);
    SetLastInstruction(attempt, rank, cause);
  }
  if (exit.signal == 0) {
    cause.set_exit_code(exit.exit_code);
  } else if (!rank.failed) {  // its message is the cause; the signal came afterwards
    cause.set_signal(exit.signal);
  }
  return cause;
}

v1::Cause CompleteFailed(v1::Cause failed, const std::string& worker, const RankState& rank, absl::Time now) {
  SetSlot(worker, rank, failed);
  if (failed.step() == 0) {
    failed.set_step(rank.sample.step);
  }
  if (!failed.has_time()) {
    *failed.mutable_time() = proto::ToProto(now);
  }
  return failed;
}

v1::Cause CauseOfRefusal(const std::string& worker, v1::FailureClass failure, const std::string& reason,
                         const std::string& message, absl::Time now) {
  v1::Cause cause = MakeCause(failure, reason, message);
  cause.set_worker(worker);
  *cause.mutable_time() = proto::ToProto(now);
  return cause;
}

v1::Cause CauseOfNoStart(const std::string& worker, const RankState& rank, const std::string& why,
                         absl::Time now) {
  v1::Cause cause =
      CauseOfRefusal(worker, v1::FAILURE_CLASS_INFRASTRUCTURE, proto::ReasonCode("SpawnFailed"),
                     absl::StrCat("rank ", rank.start.rank(), " could not be started: ", why), now);
  SetSlot(worker, rank, cause);
  return cause;
}

v1::Cause CauseNeverStarted(const std::string& worker, const RankState& rank, const std::string& reason,
                            absl::Time now) {
  v1::Cause cause =
      Requested(reason, absl::StrCat("rank ", rank.start.rank(), " was stopped before it started"));
  return CompleteFailed(std::move(cause), worker, rank, now);
}

std::string Whereabouts(const AttemptState& attempt, const PageSample& sample) {
  switch (sample.phase) {
    case v1::RANK_PHASE_CONNECTING:
      return "while connecting to the other ranks";
    case v1::RANK_PHASE_LOADING:
      return "while loading";
    case v1::RANK_PHASE_READY:
      return "before the first step";
    case v1::RANK_PHASE_FINISHED:
      return "after its last step";
    case v1::RANK_PHASE_STEPPING:
    case v1::RANK_PHASE_CHECKPOINTING:
      break;
    default:
      return "while starting";
  }
  std::string where = sample.step > 0 ? absl::StrCat("in step ", sample.step) : "in the first validation";
  if (sample.phase == v1::RANK_PHASE_CHECKPOINTING) {
    return absl::StrCat(where, ", while writing a checkpoint");
  }
  if (sample.instruction < 0) {
    return where;
  }
  if (sample.instruction < attempt.program.size()) {
    return absl::StrCat(where, ", after ", attempt.program.Phrase(sample.instruction));
  }
  return absl::StrCat(where, ", after instruction ", sample.instruction);
}

}  // namespace tandem::worker
