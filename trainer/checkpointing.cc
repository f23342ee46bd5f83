#include "trainer/checkpointing.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/owner.h"
#include "comm/communicator.h"
#include "platform/log.h"
#include "platform/random.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

// Rank 0's text on every rank; at most kMaxText bytes.
std::string FromRankZero(comm::Communicator& comm, const std::string& text) {
  constexpr int64_t kMaxText = 8192;
  if (text.size() >= kMaxText) {
    throw UserError("checkpoint: the path is too long: " + text);
  }
  const at::Tensor mine = at::zeros({kMaxText}, at::kByte);
  at::Tensor all = at::empty({comm.size() * kMaxText}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  comm.AllGather(mine, all);
  return static_cast<const char*>(all.const_data_ptr());
}

// Every rank's number on every rank.
std::vector<int64_t> FromAll(comm::Communicator& comm, int64_t number) {
  const at::Tensor mine = at::empty({1}, at::kLong);
  at::Tensor all = at::empty({comm.size()}, at::kLong);
  *mine.mutable_data_ptr<int64_t>() = number;
  comm.AllGather(mine, all);
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + comm.size()};
}

// `written`: how rank 0 fared.
void CheckWritten(comm::Communicator& comm, const absl::Status& written) {
  const std::string error = FromRankZero(comm, std::string(written.message()).substr(0, 4096));
  if (!error.empty()) {
    throw UserError(absl::StrCat("checkpoint.directory: rank 0 cannot write there: ", error));
  }
}

void CheckSameModel(const ResumeOptions& options, const checkpoint::Found& found) {
  if (found.info.layout_digest != options.layout_digest) {
    throw UserError(
        absl::StrCat("checkpoint.resume: ", found.path,
                     " is of another model (its tensors differ in name, shape or type); resume with the "
                     "model it was trained with, or start in another folder"));
  }
}

// The newest that verifies; the log tells which others were passed over.
checkpoint::Found Newest(platform::Files& files, const std::string& directory) {
  return checkpoint::FindNewest(files, directory, [](const std::string& skipped, const std::string& reason) {
    platform::Log(platform::LogLevel::kWarning, "a checkpoint that does not verify is passed over",
                  {{"path", skipped}, {"reason", reason}});
  });
}

// A later step of another job has the name that this job's own will need, and would be taken for it.
void CheckNothingLater(platform::Files& files, const ResumeOptions& options, const checkpoint::Found& start) {
  const checkpoint::Found newest = Newest(files, options.directory);
  if (newest.info.step > start.info.step && newest.info.job != options.job) {
    throw UserError(absl::StrCat("checkpoint.directory: ", options.directory, " holds step ",
                                 newest.info.step, " of job ", newest.info.job, ", later than step ",
                                 start.info.step,
                                 " that this job goes on from; use another directory, or move the later "
                                 "checkpoints away"));
  }
}

// The path to start from, or an empty one.
std::string Choose(platform::Files& files, const ResumeOptions& options) {
  if (options.resume_from.empty() && options.resume == "newest") {
    checkpoint::Found newest = Newest(files, options.directory);
    if (!newest.path.empty()) {
      CheckSameModel(options, newest);
    }
    return newest.path;
  }
  checkpoint::Found start{.path = options.resume_from.empty() ? options.resume : options.resume_from};
  try {
    start.info = checkpoint::ReadInfo(files, start.path);
  } catch (const checkpoint::CheckpointError& error) {
    throw UserError(absl::StrCat("checkpoint.resume: ", error.what(),
                                 "; name the folder of a whole checkpoint, or resume: newest"));
  }
  CheckSameModel(options, start);
  if (!options.directory.empty()) {
    CheckNothingLater(files, options, start);
  }
  return start.path;
}

}  // namespace

checkpoint::Found ChooseCheckpoint(platform::Files& files, comm::Communicator& comm,
                                   const ResumeOptions& options) {
  if (options.resume_from.empty() && options.resume.empty()) {
    return {};
  }
  // An error of rank 0 must reach the ranks that wait for its answer: as a text that is no path.
  constexpr char kUserError = '\1';
  constexpr char kFailed = '\2';
  std::string answer;
  if (comm.rank() == 0) {
    try {
      answer = Choose(files, options);
    } catch (const UserError& error) {
      answer = kUserError + std::string(error.what()).substr(0, 4096);
    } catch (const std::exception& error) {
      answer = kFailed + std::string(error.what()).substr(0, 4096);
    }
  }
  answer = FromRankZero(comm, answer);
  if (answer.empty()) {
    return {};
  }
  if (answer[0] == kUserError) {
    throw UserError(answer.substr(1));
  }
  if (answer[0] == kFailed) {
    throw checkpoint::CheckpointError(answer.substr(1));
  }
  return {.path = answer, .info = checkpoint::ReadInfo(files, answer)};
}

void CheckSameFolder(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                     int attempt) {
  if (comm.size() == 1) {
    return;
  }
  const std::string path = absl::StrCat(directory, "/.same-folder.", attempt);
  const std::string token = FromRankZero(comm, platform::SystemRandom().HexId(32));
  absl::Status written;
  if (comm.rank() == 0) {
    written = files.CreateFolders(directory);
    if (written.ok()) {
      written = files.Write(path, token);
    }
  }
  CheckWritten(comm, written);
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
  const std::vector<int64_t> blind = FromAll(comm, same ? 0 : 1);
  if (comm.rank() == 0) {
    const absl::Status removed = files.RemoveAll(path);
    if (!removed.ok()) {
      platform::Log(platform::LogLevel::kWarning, "cannot remove a file",
                    {{"error", std::string(removed.message())}});
    }
  }
  std::vector<int> ranks;
  for (size_t rank = 0; rank < blind.size(); ++rank) {
    if (blind[rank] != 0) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  if (!ranks.empty()) {
    throw UserError(absl::StrCat("checkpoint.directory: ", directory, " is not the same folder on rank ",
                                 absl::StrJoin(ranks, ", "),
                                 " as on rank 0; use one that all workers share"));
  }
}

void TakeDirectory(platform::Files& files, comm::Communicator& comm, const std::string& directory,
                   const std::string& job) {
  absl::Status written;
  if (comm.rank() == 0) {
    written = checkpoint::TakeOwnership(files, directory, job);
  }
  CheckWritten(comm, written);
}

}  // namespace tandem::trainer
