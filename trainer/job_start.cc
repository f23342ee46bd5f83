// SPDX-License-Identifier: Apache-2.0
#include "trainer/job_start.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/folder.h"
#include "checkpoint/job_folder.h"
#include "checkpoint/remove_together.h"
#include "checkpoint/start_files.h"
#include "checkpoint/work_together.h"
#include "jobspec/resume.h"
#include "platform/log.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"
#include "trainer/failure.h"
#include "trainer/progress.h"

namespace tandem::trainer {
namespace {

constexpr size_t kMostPassedOver = 5;  // that a warning each is for; one more says how many there are beside
constexpr size_t kMostReasons = 3;     // that one line names
constexpr absl::Duration kOldLeftover = absl::Hours(1);  // no start takes that long

bool IsNewest(const ResumeOptions& options) {
  return options.resume_from.empty() && options.resume == jobspec::kResumeNewest;
}

void ThrowIfRankZeroCannotWrite(const absl::Status& written) {
  ThrowIfUnwritable("rank 0 cannot write there", written);
}

// Collective. Every rank must see a file that rank 0 has just written in `directory`; throws UserError on all
// ranks, naming those that do not, after five seconds; as ThrowIfUnwritable where rank 0 cannot write there.
void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory) {
  if (comm.size() == 1) {
    return;
  }
  // A name that no other job has, which may start there at the same time.
  const std::string token = OnRankZero(comm, [&] {
    std::string fresh = platform::SystemRandom().HexId(32);
    const std::string file = absl::StrCat(directory, "/", checkpoint::kSameFolderPrefix, fresh);
    const absl::Status written = files.Write(file, fresh);
    if (!written.ok()) {
      files.RemoveAll(file).IgnoreError();  // the first error counts
    }
    ThrowIfRankZeroCannotWrite(written);
    return fresh;
  });
  const std::string path = absl::StrCat(directory, "/", checkpoint::kSameFolderPrefix, token);
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto seen = [&] {
    const absl::StatusOr<std::string> content = files.Read(path);
    return content.ok() && *content == token;
  };
  bool same = seen();
  while (!same && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // network file systems are slow to show a name
    same = seen();
  }
  const std::vector<std::string> blind = checkpoint::ExchangeTexts(comm, same ? "" : "blind");
  if (comm.rank() == 0) {
    const absl::Status removed = files.RemoveAll(path);
    if (!removed.ok()) {
      platform::Log(platform::LogLevel::kWarning, "cannot remove a file",
                    {{"error", std::string(removed.message())}});
    }
  }
  std::vector<int> ranks;
  for (size_t rank = 0; rank < blind.size(); ++rank) {
    if (!blind[rank].empty()) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  if (!ranks.empty()) {
    throw UserError(absl::StrCat("checkpoint.directory: ", directory, " is not the same folder on rank ",
                                 absl::StrJoin(ranks, ", "),
                                 " as on rank 0; use one that all workers share"));
  }
}

// Rank 0. What is to be removed of another job's, as checkpoint::TakeOwnership returns it.
std::vector<std::string> TakeDirectory(platform::Files& files, const ResumeOptions& options) {
  bool logged = false;
  const auto pause = [&] {
    if (!std::exchange(logged, true)) {
      platform::Log(platform::LogLevel::kInfo,
                    "the checkpoint directory has another owner; waiting to see whether it is alive",
                    {{"directory", options.directory}});
    }
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(checkpoint::kRenewal));
  };
  absl::StatusOr<std::vector<std::string>> doomed =
      checkpoint::TakeOwnership(files, options.directory, options.self, pause);
  const absl::Status& taken = doomed.status();
  if (absl::IsFailedPrecondition(taken)) {
    throw UserError(std::string(taken.message()), proto::ReasonCode("CheckpointDirectoryInUse"));
  }
  if (absl::IsAborted(taken)) {
    throw UserError(std::string(taken.message()), proto::ReasonCode("CheckpointDirectoryLost"));
  }
  ThrowIfRankZeroCannotWrite(taken);
  return *std::move(doomed);
}

// Rank 0, of the job that owns the directory. Removes the tokens, and the files that were to become `.owner`,
// of jobs that were killed as they started: those that are older by far than `.owner`, by the clock of that
// file system. A job that has just started here looks for its own still.
absl::Status RemoveLeftovers(platform::Files& files, const std::string& directory) {
  TANDEM_ASSIGN_OR_RETURN(const absl::Time now,
                          files.ModificationTime(absl::StrCat(directory, "/", checkpoint::kOwnerName)));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) {
    if (!checkpoint::IsOfAStart(name)) {
      continue;
    }
    const std::string path = absl::StrCat(directory, "/", name);
    const absl::StatusOr<absl::Time> written = files.ModificationTime(path);
    if (written.ok() && now - *written >= kOldLeftover) {
      TANDEM_RETURN_IF_ERROR(files.RemoveAll(path));
    }
  }
  return absl::OkStatus();
}

// Collective. The newest after step `after` that verifies; rank 0 adds those that were passed over for it.
checkpoint::Found Newest(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                         int64_t after, const StartListener& listener,
                         std::vector<v1::CheckpointWarning>& passed_over) {
  const auto skipped = [&](const std::string& path, const std::string& reason) {
    platform::Log(platform::LogLevel::kWarning, "a checkpoint that does not verify is passed over",
                  {{"path", path}, {"reason", reason}});
    const std::string name = path.substr(path.rfind('/') + 1);
    passed_over.push_back(WarningOf(v1::CHECKPOINT_PROBLEM_PASSED_OVER,
                                    checkpoint::StepOfName(name).value_or(0), path,
                                    absl::StrCat(name, " does not verify (", reason, ")")));
  };
  try {
    return checkpoint::FindNewest(
        files, comm, options.directory, after,
        {.skipped = skipped,
         .verified =
             ShownProgress(comm.rank() == 0, "the ranks verify a checkpoint", "bytes", listener.moved)});
  } catch (const checkpoint::CheckpointTooNew& error) {  // to go on from an older one would lose its steps
    throw UserError(absl::StrCat("checkpoint.resume: ", error.what(),
                                 "; to go on from an older checkpoint, move this one away"));
  }
}

// One line of them.
std::string AtMostReasons(std::vector<std::string> reasons) {
  if (reasons.size() > kMostReasons) {
    const size_t more = reasons.size() - kMostReasons;
    reasons.resize(kMostReasons);
    reasons.push_back(absl::StrCat(more, " more"));
  }
  return absl::StrJoin(reasons, "; ");
}

// To start from step 1 would train the same steps again and start metrics.jsonl over: only the user may
// decide that.
[[noreturn]] void FailWithoutValid(const std::string& directory,
                                   const std::vector<v1::CheckpointWarning>& passed_over) {
  std::vector<std::string> reasons;
  for (const v1::CheckpointWarning& warning : passed_over) {
    reasons.push_back(warning.message());
  }
  const bool one = passed_over.size() == 1;
  throw UserError(
      absl::StrCat("checkpoint.resume: newest: ", directory, " holds ", passed_over.size(),
                   one ? " checkpoint, which does not verify: " : " checkpoints, and none verifies: ",
                   AtMostReasons(std::move(reasons)),
                   "; restore one, name another with checkpoint.resume, or set checkpoint: {resume: none} to "
                   "start from step 1"),
      proto::ReasonCode("NoValidCheckpoint"));
}

// At most kMostPassedOver, and how many there are beside.
void AddPassedOver(std::vector<v1::CheckpointWarning> passed_over, const checkpoint::Found& start,
                   std::vector<v1::CheckpointWarning>& warnings) {
  const size_t more = passed_over.size() - std::min(passed_over.size(), kMostPassedOver);
  passed_over.resize(passed_over.size() - more);
  for (v1::CheckpointWarning& warning : passed_over) {
    absl::StrAppend(warning.mutable_message(), "; the job goes on from step ", start.info.step);
    warnings.push_back(std::move(warning));
  }
  if (more > 0) {
    warnings.push_back(WarningOf(v1::CHECKPOINT_PROBLEM_PASSED_OVER, 0, "",
                                 absl::StrCat(more, " more checkpoints do not verify either")));
  }
}

// Collective. A later checkpoint of another job has a name that this job will need, and would pass for this
// job's. Damaged ones make way when their step is saved.
void CheckNothingLater(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                       const checkpoint::Found& start, const StartListener& listener,
                       std::vector<v1::CheckpointWarning>& damaged) {
  const checkpoint::Found newest = Newest(files, comm, options, start.info.step, listener, damaged);
  if (!newest.path.empty() && newest.info.job != options.self.job) {
    throw UserError(absl::StrCat("checkpoint.directory: ", options.directory, " holds step ",
                                 newest.info.step, " of job ", newest.info.job, ", later than step ",
                                 start.info.step,
                                 " that this job goes on from; use another directory, or move the later "
                                 "checkpoints away"));
  }
}

// The directory was new or empty when jobspec::CheckFiles looked. Since then another job may have trained
// there and given it back.
void CheckStillNew(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  ThrowIfRankZeroCannotWrite(names.status());
  for (const std::string& name : *names) {
    if (name == checkpoint::kOwnerName || checkpoint::CountsAsNothing(name)) {
      continue;  // of this job, and of others that have just started
    }
    throw UserError(absl::StrCat("checkpoint.directory: another job has used ", directory,
                                 " since this one was "
                                 "submitted (it holds ",
                                 name,
                                 "): use checkpoint: {resume: newest} to go on from "
                                 "there, or another folder"));
  }
}

// Rank 0. That a checkpoint which was named is there.
void CheckNamed(platform::Files& files, const std::string& path) {
  try {
    checkpoint::Inspect(files, path);
  } catch (const checkpoint::CheckpointUnreadable&) {
    throw;
  } catch (const checkpoint::CheckpointError& error) {
    throw UserError(absl::StrCat("checkpoint.resume: ", error.what(),
                                 "; name the folder of a whole checkpoint, or resume: newest"));
  }
}

// Collective. The checkpoint that rank 0 has found good, which every rank must see there. That a rank cannot
// read it now is not an error of the user's.
checkpoint::Found InspectOnEveryRank(platform::Files& files, comm::Communicator& comm,
                                     const std::string& path) {
  try {
    return checkpoint::InspectTogether(files, comm, path);
  } catch (const checkpoint::CheckpointUnreadable&) {
    throw;
  } catch (const checkpoint::CheckpointError& error) {
    throw UserError(
        absl::StrCat("checkpoint.resume: ", error.what(), "; name a folder that all workers share"));
  }
}

// Collective. Sets start.whole, with a warning of the checkpoints that are not among them: they take up
// space, and nothing else reports why they stay. told: whether the start's warnings already name the damaged
// ones.
void FindWhole(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
               const StartListener& listener, const std::vector<v1::CheckpointWarning>& damaged, bool told,
               JobStart& start) {
  std::set<int64_t> known;
  std::vector<std::string> others;
  for (const v1::CheckpointWarning& warning : damaged) {
    known.insert(warning.step());
    if (!told) {
      others.push_back(warning.message());
    }
  }
  start.whole = checkpoint::FindWholeSteps(
      files, comm, options.directory, [&](int64_t step, const std::string& reason) {
        if (!reason.empty() && !known.contains(step)) {
          others.push_back(absl::StrCat(checkpoint::StepName(step), " (", reason, ")"));
        }
        listener.moved();
      });
  for (const int64_t step : known) {
    start.whole.erase(step);  // it was read, and its content is not what it was
  }
  if (comm.rank() != 0 || others.empty()) {
    return;
  }
  for (const std::string& other : others) {
    platform::Log(platform::LogLevel::kWarning, "a checkpoint is not known to be whole",
                  {{"directory", options.directory}, {"checkpoint", other}});
  }
  start.warnings.push_back(
      WarningOf(v1::CHECKPOINT_PROBLEM_UNSPECIFIED, 0, "",
                absl::StrCat("checkpoint.keep neither counts nor removes what is not known to be whole: ",
                             AtMostReasons(std::move(others)), "; remove it if it is not wanted")));
}

// Collective. Sets start.from, and what else of `start` follows from it.
void Choose(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
            const StartListener& listener, JobStart& start) {
  const bool newest = IsNewest(options);
  const bool named = !options.resume_from.empty() || jobspec::IsResumePath(options.resume);
  const bool is_new = !newest && !named && options.resume.empty();  // "none" is a decision
  std::vector<v1::CheckpointWarning> damaged;
  if (newest) {
    start.from = Newest(files, comm, options, /*after=*/-1, listener, damaged);
  } else if (named) {
    start.from.path = options.resume_from.empty() ? options.resume : options.resume_from;
  }
  const bool weights = start.from.path.empty() && !options.start_from.empty() && !named;
  OnRankZero(comm, [&] {
    if (newest && start.from.path.empty() && !damaged.empty()) {
      FailWithoutValid(options.directory, damaged);
    }
    if (newest) {
      AddPassedOver(damaged, start.from, start.warnings);
    }
    if (named) {
      CheckNamed(files, start.from.path);
    }
    if (is_new && !options.directory.empty() && options.self.attempt == 1) {
      CheckStillNew(files, options.directory);
    }
    return "";
  });
  if (named) {
    start.from = InspectOnEveryRank(files, comm, start.from.path);
  }
  if (weights) {
    start.weights = FindStartWeights(files, comm, options);
  }
  if (!start.from.path.empty()) {
    OnRankZero(comm, [&] {
      CheckResumable(options, start.from);
      for (v1::CheckpointWarning& warning : DifferencesOf(options, start.from)) {
        start.warnings.push_back(std::move(warning));
      }
      return "";
    });
  }
  if (options.directory.empty()) {
    return;
  }
  if (!newest && !is_new) {
    CheckNothingLater(files, comm, options, start.from, listener, damaged);
  }
  FindWhole(files, comm, options, listener, damaged, /*told=*/newest, start);
}

}  // namespace

JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, const StartListener& listener) {
  JobStart start;
  bool made = false;  // the directory, on rank 0
  if (!options.directory.empty()) {
    OnRankZero(comm, [&] {
      made = absl::IsNotFound(files.IdOfFolder(options.directory).status());
      ThrowIfRankZeroCannotWrite(files.CreateFolders(options.directory));
      return "";
    });
    CheckSameFolder(files, comm, options.directory);
    const absl::Status found = checkpoint::StatusOfPart([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(start.folder, checkpoint::FindJobFolder(files, options.directory));
      return absl::OkStatus();
    });
    checkpoint::AgreeOnSuccess(comm, found);
    std::vector<std::string> doomed;
    OnRankZero(comm, [&] {
      doomed = TakeDirectory(files, options);
      lease.Hold(std::make_unique<checkpoint::Lease>(files, start.folder, options.self, listener.lost));
      const absl::Status removed = RemoveLeftovers(files, options.directory);
      if (!removed.ok()) {
        platform::Log(platform::LogLevel::kWarning, "cannot remove what a killed start has left",
                      {{"error", std::string(removed.message())}});
      }
      return "";
    });
    if (!doomed.empty()) {
      platform::Log(platform::LogLevel::kInfo,
                    "removing what another job has left in the checkpoint directory",
                    {{"directory", options.directory}, {"folders", absl::StrCat(doomed.size())}});
    }
    // The first save tries again to remove what stays, and reports it.
    checkpoint::RemoveTogether(files, comm, doomed,
                               ShownProgress(comm.rank() == 0, "the ranks remove what another job has left",
                                             "files", listener.moved));
  }
  Choose(files, comm, options, listener, start);
  if (made && IsNewest(options) && start.from.path.empty()) {
    start.warnings.push_back(
        WarningOf(v1::CHECKPOINT_PROBLEM_UNSPECIFIED, 0, "",
                  absl::StrCat("checkpoint.resume: newest: made ", options.directory,
                               ", in which there is no checkpoint, and starts from step 1; if one should be "
                               "there, is its file system mounted?")));
  }
  return start;
}

}  // namespace tandem::trainer
