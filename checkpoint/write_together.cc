// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/write_together.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint/work_together.h"
#include "comm/communicator.h"
#include "platform/clock.h"
#include "platform/status_macros.h"
#include "platform/steady_condition.h"

namespace tandem::checkpoint {
namespace {

// Writes one file on a thread of its own, from parts that another thread passes to it.
class FileWriter {
 public:
  enum class State { kWriting, kWantsPart, kDone };

  // `files` must outlive this object.
  FileWriter(platform::Files& files, std::string folder, std::string path)
      : files_(files), folder_(std::move(folder)), path_(std::move(path)), thread_([this] { Run(); }) {}

  // Ends the write or sync in progress, and writes no further part.
  ~FileWriter() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      abandoned_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Waits, for `limit` at most, until the given parts are written.
  State Await(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, limit,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return state_ != State::kWriting; });
    return state_;
  }

  // May be called if a part is wanted. An empty part means that there are no more. The part is used until
  // the next is wanted.
  void Give(std::string_view part) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    part_ = part;
    state_ = State::kWriting;
    changed_.NotifyAll();
  }

  // May be called once the state is done.
  absl::Status status() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Status status = StatusOfPart([this]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(files_.WriteParts(path_, [this] { return Next(); }));
      return files_.SyncFolder(folder_);
    });
    const absl::MutexLock lock(&mu_);
    status_ = status;
    state_ = State::kDone;
    changed_.NotifyAll();
  }

  absl::StatusOr<std::string_view> Next() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    state_ = State::kWantsPart;
    changed_.NotifyAll();
    while (state_ == State::kWantsPart && !abandoned_) {
      changed_.Wait(mu_);
    }
    if (abandoned_) {
      return absl::CancelledError("the file is not wanted any more");
    }
    return part_;
  }

  platform::Files& files_;
  const std::string folder_;
  const std::string path_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kWriting;
  std::string_view part_ ABSL_GUARDED_BY(mu_);
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // declared last: it uses the members above
};

}  // namespace

absl::Status WriteTogether(platform::Files& files, comm::Communicator& comm, const std::string& folder,
                           const std::string& path,
                           const std::function<absl::StatusOr<std::string_view>()>& next,
                           const WritingPace& pace) {
  const platform::Clock& clock = platform::SteadyClock();
  std::optional<FileWriter> writer;
  absl::Time moved = clock.Now();
  const auto write_on = [&]() -> absl::StatusOr<RankProgress> {
    if (!writer.has_value()) {
      writer.emplace(files, folder, path);
    }
    const absl::Time meeting = clock.Now() + pace.between_meetings;
    while (true) {
      const absl::Time now = clock.Now();
      const bool stands_still = now - moved >= pace.standstill;
      switch (writer->Await(stands_still ? absl::InfiniteDuration() : meeting - now)) {
        case FileWriter::State::kDone:
          TANDEM_RETURN_IF_ERROR(writer->status());
          return RankProgress{.done = true};
        case FileWriter::State::kWantsPart: {
          TANDEM_ASSIGN_OR_RETURN(const std::string_view part, next());
          writer->Give(part);
          moved = clock.Now();
          break;
        }
        case FileWriter::State::kWriting:
          break;
      }
      if (clock.Now() >= meeting) {
        return RankProgress{};
      }
    }
  };
  absl::Status own;
  const auto write_and_keep_error = [&]() -> absl::StatusOr<RankProgress> {
    RankProgress standing;
    own = StatusOfPart([&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(standing, write_on());
      return absl::OkStatus();
    });
    TANDEM_RETURN_IF_ERROR(own);
    return standing;
  };
  WorkTogether(comm, path, write_and_keep_error, [](const WorkProgress&) {
  }).IgnoreError();  // the caller agrees on `own` instead
  return own;
}

}  // namespace tandem::checkpoint
