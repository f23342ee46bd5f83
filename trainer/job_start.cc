// SPDX-License-Identifier: Apache-2.0
#include "trainer/job_start.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/exchange.h"
#include "checkpoint/folder.h"
#include "jobspec/model_function.h"
#include "jobspec/resume.h"
#include "platform/log.h"
#include "platform/random.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPassedOver = 5;  // that a warning each is for; one more says how many there are beside
constexpr size_t kMostReasons = 3;     // that one error names
constexpr char kTokenPrefix[] = ".same-folder.";

// What rank 0 decides for all.
struct Choice {
  std::string path;    // to start from; empty: step 0
  std::string error;   // empty: none
  std::string reason;  // of the user's error; empty: it is not the user's
};

// Collective: rank 0 decides. Every rank throws its error.
Choice DecideOnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide) {
  Choice choice;
  if (comm.rank() == 0) {
    try {
      choice.path = decide();
    } catch (const UserError& error) {
      choice = {.path = "", .error = error.what(), .reason = error.reason};
    } catch (const std::exception& error) {  // the other ranks wait for this one, so they must learn of it
      choice.error = error.what();
    }
  }
  const Json mine = {{"path", choice.path}, {"error", choice.error}, {"reason", choice.reason}};
  const Json json = Json::parse(
      checkpoint::ExchangeTexts(comm, mine.dump(-1, ' ', false, Json::error_handler_t::replace))[0]);
  choice = {.path = json.at("path").get<std::string>(),
            .error = json.at("error").get<std::string>(),
            .reason = json.at("reason").get<std::string>()};
  if (choice.error.empty()) {
    return choice;
  }
  if (choice.reason.empty()) {
    throw checkpoint::CheckpointError(choice.error);
  }
  throw UserError(choice.error, choice.reason);
}

void ThrowIfUnwritable(const absl::Status& written) {
  if (!written.ok()) {
    throw UserError(absl::StrCat("checkpoint.directory: rank 0 cannot write there: ", written.message()));
  }
}

// Collective. Every rank must see a file that rank 0 has just written in `directory`; throws UserError on all
// ranks, naming those that do not, after five seconds.
void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory) {
  if (comm.size() == 1) {
    return;
  }
  // A name that no other job has, which may start there at the same time.
  const std::string token =
      DecideOnRankZero(comm, [&] {
        const std::string fresh = platform::SystemRandom().HexId(32);
        ThrowIfUnwritable(files.CreateFolders(directory));
        ThrowIfUnwritable(files.Write(absl::StrCat(directory, "/", kTokenPrefix, fresh), fresh));
        return fresh;
      }).path;
  const std::string path = absl::StrCat(directory, "/", kTokenPrefix, token);
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

// Rank 0.
void TakeDirectory(platform::Files& files, const ResumeOptions& options) {
  bool logged = false;
  const auto pause = [&] {
    if (!std::exchange(logged, true)) {
      platform::Log(platform::LogLevel::kInfo,
                    "the checkpoint directory has another owner; waiting to see whether it is alive",
                    {{"directory", options.directory}});
    }
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(checkpoint::kRenewal));
  };
  const absl::Status taken = checkpoint::TakeOwnership(files, options.directory, options.self, pause);
  if (absl::IsFailedPrecondition(taken)) {
    throw UserError(std::string(taken.message()), "CheckpointDirectoryInUse");
  }
  if (absl::IsAborted(taken)) {
    throw UserError(std::string(taken.message()), "CheckpointDirectoryLost");
  }
  ThrowIfUnwritable(taken);
}

// "F64" → "fp64"
std::string TypeName(const std::string& dtype) { return absl::StrCat("fp", absl::StripPrefix(dtype, "F")); }

// Before CheckSameModel: the types of main weights are one reason why layouts may differ, and need not.
void CheckSameType(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.weights_dtype == options.weights_dtype) {
    return;
  }
  throw UserError(absl::StrCat(
      "checkpoint.resume: ", found.path, " holds weights in ", TypeName(found.weights_dtype),
      ", and this job's are in ", TypeName(options.weights_dtype), "; allowed: precision: {compute: ",
      found.weights_dtype == "F64" ? "fp64" : "fp32 or bf16", "}, or start in another folder"));
}

void CheckSameModel(const ResumeOptions& options, const checkpoint::Found& found) {
  const std::vector<std::string>& digests = options.layout_digests;
  if (std::find(digests.begin(), digests.end(), found.info.layout_digest) == digests.end()) {
    throw UserError(
        absl::StrCat("checkpoint.resume: ", found.path,
                     " is of another model (its tensors differ in name, shape or type); resume with the "
                     "model it was trained with, or start in another folder"));
  }
}

// Heads, eps, experts a token, ...: what no shape of a tensor shows.
void CheckSameFunction(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.info.model.empty()) {
    return;  // of a build that did not write it
  }
  const absl::StatusOr<std::vector<std::string>> differences =
      jobspec::ModelDifferences(found.info.model, options.model);
  if (!differences.ok()) {
    throw UserError(absl::StrCat("checkpoint.resume: ", found.path, ": ", differences.status().message()));
  }
  if (!differences->empty()) {
    throw UserError(absl::StrCat("checkpoint.resume: ", found.path,
                                 " is of another model: ", absl::StrJoin(*differences, "; "),
                                 "; resume with the model it was trained with, or start in another folder"));
  }
}

// Arrays by unit, as version 1 has them, are read only where they lie as this job's: not of another
// precision, though the model is the same.
void CheckSameLayout(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.version == 1 && found.info.layout_digest != options.layout_digests.front()) {
    throw UserError(absl::StrCat(
        "checkpoint.resume: ", found.path,
        " is of version 1 and of another precision than this job, which places parameters elsewhere; go on "
        "from it once with the precision that it was trained with, whose next checkpoint any precision "
        "reads"));
  }
}

// A router chooses others without its bias, and one that starts again in the middle forgets what it has
// learnt.
void CheckSameStates(const ResumeOptions& options, const checkpoint::Found& found) {
  const bool theirs = !found.states.empty();
  if (theirs == !options.states.empty()) {
    return;
  }
  throw UserError(
      absl::StrCat("checkpoint.resume: ", found.path, " was saved ", theirs ? "with" : "without",
                   " biases of routers (", theirs ? found.states.front() : options.states.front(),
                   "), and this job has ", theirs ? "none" : "some", "; allowed: model.moe: ",
                   theirs ? "{router_bias_update_rate: more than 0}" : "{router_bias_update_rate: 0}",
                   ", or start in another folder"));
}

// A job whose steps are all done has nothing left to do, but one that ends before its start is a mistake.
void CheckNotPastTheEnd(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.info.step <= options.last_step) {
    return;
  }
  throw UserError(absl::StrCat("training.steps: ", options.last_step, " is not allowed: ", found.path,
                               ", which the job goes on from, is of step ", found.info.step,
                               "; allowed: at least ", found.info.step,
                               "; raise training.steps, or resume from an earlier checkpoint"));
}

// The newest that verifies, and those that were passed over for it.
checkpoint::Found Newest(platform::Files& files, const std::string& directory,
                         std::vector<v1::CheckpointWarning>& passed_over) {
  return checkpoint::FindNewest(files, directory, [&](const std::string& path, const std::string& reason) {
    platform::Log(platform::LogLevel::kWarning, "a checkpoint that does not verify is passed over",
                  {{"path", path}, {"reason", reason}});
    const std::string name = path.substr(path.rfind('/') + 1);
    passed_over.push_back(WarningOf(v1::CHECKPOINT_PROBLEM_PASSED_OVER,
                                    checkpoint::StepOfName(name).value_or(0), path,
                                    absl::StrCat(name, " does not verify (", reason, ")")));
  });
}

// To start from step 1 would train the same steps again and start metrics.jsonl over: only the user may
// decide that.
[[noreturn]] void FailWithoutValid(const std::string& directory,
                                   const std::vector<v1::CheckpointWarning>& passed_over) {
  std::vector<std::string> reasons;
  for (const v1::CheckpointWarning& warning : passed_over) {
    if (reasons.size() == kMostReasons) {
      reasons.push_back(absl::StrCat(passed_over.size() - kMostReasons, " more"));
      break;
    }
    reasons.push_back(warning.message());
  }
  const bool one = passed_over.size() == 1;
  throw UserError(
      absl::StrCat("checkpoint.resume: newest: ", directory, " holds ", passed_over.size(),
                   one ? " checkpoint, which does not verify: " : " checkpoints, and none verifies: ",
                   absl::StrJoin(reasons, "; "),
                   "; restore one, name another with checkpoint.resume, or set checkpoint: {resume: none} to "
                   "start from step 1"),
      "NoValidCheckpoint");
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

// A later checkpoint of another job has a name that this job will need, and would pass for this job's.
void CheckNothingLater(platform::Files& files, const ResumeOptions& options, const checkpoint::Found& start) {
  std::vector<v1::CheckpointWarning> damaged;  // make way when their step is saved
  const checkpoint::Found newest = Newest(files, options.directory, damaged);
  if (newest.info.step > start.info.step && newest.info.job != options.self.job) {
    throw UserError(absl::StrCat("checkpoint.directory: ", options.directory, " holds step ",
                                 newest.info.step, " of job ", newest.info.job, ", later than step ",
                                 start.info.step,
                                 " that this job goes on from; use another directory, or move the later "
                                 "checkpoints away"));
  }
}

// Where in the text the job goes on follows from its own numbers. Empty: where the checkpoint's job was.
std::string OtherPlace(const ResumeOptions& options, const checkpoint::Info& there) {
  if (there.sequence_length > 0 && there.sequence_length != options.sequence_length) {
    return absl::StrCat(
        "training.sequence_length is ", options.sequence_length, ", and was ", there.sequence_length,
        " up to step ", there.step,
        ": the text is cut into other sequences, which come in another order, so that some of "
        "it is read again and some is skipped");
  }
  if (there.global_batch_size > 0 && there.global_batch_size != options.global_batch_size) {
    return absl::StrCat("training.global_batch_size is ", options.global_batch_size, ", and was ",
                        there.global_batch_size, " up to step ", there.step, ", which had come to sequence ",
                        there.step * there.global_batch_size, " of the text: this job goes on at sequence ",
                        there.step * options.global_batch_size, ", so that those between are ",
                        options.global_batch_size < there.global_batch_size ? "read again" : "skipped");
  }
  return "";
}

// The job goes on with another seed, other text or at another place of it than the checkpoint was trained
// with.
void AddDifferences(const ResumeOptions& options, const checkpoint::Found& start,
                    std::vector<v1::CheckpointWarning>& warnings) {
  const auto add = [&](v1::CheckpointProblem problem, const std::string& message) {
    warnings.push_back(WarningOf(problem, start.info.step, start.path, message));
  };
  if (start.info.seed && *start.info.seed != options.seed) {
    add(v1::CHECKPOINT_PROBLEM_OTHER_SEED,
        absl::StrCat("training.seed is ", options.seed, ", and was ", *start.info.seed, " up to step ",
                     start.info.step, ": from there on the text comes in another order"));
  }
  std::vector<std::string> of_text;  // one warning: a job's record has no room for more
  if (!start.info.data_digest.empty() && start.info.data_digest != options.data_digest) {
    of_text.push_back(absl::StrCat(
        "the text is not what it was up to step ", start.info.step, " (digest ",
        options.data_digest.substr(0, 12), ", was ", start.info.data_digest.substr(0, 12),
        "): data.train, data.validation or data.documents has changed, and the losses before and after "
        "cannot be compared"));
  }
  if (const std::string place = OtherPlace(options, start.info); !place.empty()) {
    of_text.push_back(place);
  }
  if (!of_text.empty()) {
    add(v1::CHECKPOINT_PROBLEM_OTHER_DATA, absl::StrJoin(of_text, "; "));
  }
}

// The directory was new or empty when jobspec::CheckFiles looked. Since then another job may have trained
// there and given it back.
void CheckStillNew(platform::Files& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  ThrowIfUnwritable(names.status());
  for (const std::string& name : *names) {
    if (name.starts_with(checkpoint::kOwnerPrefix) || name.starts_with(kTokenPrefix)) {
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

// Rank 0. The checkpoint to start from, or an empty path.
checkpoint::Found Choose(platform::Files& files, const ResumeOptions& options,
                         std::vector<v1::CheckpointWarning>& warnings) {
  checkpoint::Found start;
  const bool newest = options.resume_from.empty() && options.resume == jobspec::kResumeNewest;
  if (newest) {
    std::vector<v1::CheckpointWarning> passed_over;
    start = Newest(files, options.directory, passed_over);
    if (start.path.empty() && !passed_over.empty()) {
      FailWithoutValid(options.directory, passed_over);
    }
    AddPassedOver(std::move(passed_over), start, warnings);
  } else if (!options.resume_from.empty() || jobspec::IsResumePath(options.resume)) {
    start.path = options.resume_from.empty() ? options.resume : options.resume_from;
    try {
      start = checkpoint::Inspect(files, start.path);
    } catch (const checkpoint::CheckpointUnreadable&) {
      throw;
    } catch (const checkpoint::CheckpointError& error) {
      throw UserError(absl::StrCat("checkpoint.resume: ", error.what(),
                                   "; name the folder of a whole checkpoint, or resume: newest"));
    }
  } else if (options.resume.empty()) {
    if (!options.directory.empty() && options.self.attempt == 1) {
      CheckStillNew(files, options.directory);
    }
    return start;
  }
  if (!start.path.empty()) {
    CheckSameType(options, start);
    CheckSameModel(options, start);
    CheckSameFunction(options, start);
    CheckSameLayout(options, start);
    CheckSameStates(options, start);
    CheckNotPastTheEnd(options, start);
    AddDifferences(options, start, warnings);
  }
  if (!options.directory.empty() && !newest) {
    CheckNothingLater(files, options, start);
  }
  return start;
}

}  // namespace

v1::CheckpointWarning WarningOf(v1::CheckpointProblem problem, int64_t step, const std::string& path,
                                const std::string& message) {
  v1::CheckpointWarning warning;
  warning.set_problem(problem);
  warning.set_step(step);
  warning.set_path(path);
  warning.set_message(message);
  return warning;
}

JobStart StartJob(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options,
                  checkpoint::HeldLease& lease, std::function<void(const std::string& reason)> lost) {
  JobStart start;
  if (!options.directory.empty()) {
    CheckSameFolder(files, comm, options.directory);
  }
  start.from.path = DecideOnRankZero(comm, [&]() -> std::string {
                      if (!options.directory.empty()) {
                        TakeDirectory(files, options);
                        lease.Hold(std::make_unique<checkpoint::Lease>(files, options.directory, options.self,
                                                                       std::move(lost)));
                      }
                      return Choose(files, options, start.warnings).path;
                    }).path;
  if (!start.from.path.empty()) {
    start.from = checkpoint::Inspect(files, start.from.path);
  }
  return start;
}

}  // namespace tandem::trainer
