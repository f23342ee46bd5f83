// SPDX-License-Identifier: Apache-2.0
#include "worker/log_upload.h"

#include <fcntl.h>
#include <grpcpp/channel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/thread.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::worker {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kMaxUploads = 64;
constexpr absl::Duration kFollowPeriod = absl::Milliseconds(100);
constexpr int kIdlePeriods = 10;  // then an empty chunk asks whether the controller still listens

// As many bytes as there are, up to `size`; -1 with errno on error.
ssize_t ReadAt(int fd, char* data, size_t size, int64_t offset) {
  ssize_t got = 0;
  do {
    got = pread(fd, data, size, offset);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

struct LogUploads::Upload {
  grpc::ClientContext context;
  std::thread thread;
  std::atomic<bool> done{false};
};

absl::StatusOr<int64_t> TailOffset(int fd, int64_t lines) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, "look at a log");
  }
  if (lines <= 0) {
    return 0;
  }
  std::vector<char> buffer(1 << 16);
  int64_t newlines = 0;
  for (int64_t end = info.st_size; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(buffer.size()));
    const ssize_t got = ReadAt(fd, buffer.data(), static_cast<size_t>(end - begin), begin);
    if (got < 0) {
      return absl::ErrnoToStatus(errno, "read a log");
    }
    for (int64_t i = got - 1; i >= 0; --i) {
      // The newline at the very end closes the last line; it begins none.
      if (buffer[i] == '\n' && begin + i + 1 < info.st_size && ++newlines == lines) {
        return begin + i + 1;
      }
    }
    end = begin;
  }
  return 0;
}

LogUploads::LogUploads(std::function<std::shared_ptr<grpc::Channel>()> channel, Sources sources)
    : channel_(std::move(channel)), sources_(std::move(sources)) {}

LogUploads::~LogUploads() {
  std::list<std::unique_ptr<Upload>> uploads;
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
    uploads.swap(uploads_);
    changed_.NotifyAll();
  }
  for (const std::unique_ptr<Upload>& upload : uploads) {
    upload->context.TryCancel();
  }
  for (const std::unique_ptr<Upload>& upload : uploads) {
    upload->thread.join();
  }
}

void LogUploads::Start(const v1::UploadRequest& request) {
  const absl::MutexLock lock(&mu_);
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    if ((*it)->done) {
      (*it)->thread.join();
      it = uploads_.erase(it);
    } else {
      ++it;
    }
  }
  Upload& upload = *uploads_.emplace_back(std::make_unique<Upload>());
  absl::StatusOr<std::thread> thread =
      platform::StartThread([this, &upload, request, too_many = uploads_.size() > kMaxUploads] {
        Run(upload, request, too_many);
        upload.done = true;
      });
  if (!thread.ok()) {  // which the controller notices
    platform::Log(platform::LogLevel::kWarning, "a log cannot be sent",
                  {{"job", request.id().job_id()}, {"error", std::string(thread.status().message())}});
    uploads_.pop_back();
    return;
  }
  upload.thread = *std::move(thread);
}

bool LogUploads::Pause() {
  const absl::MutexLock lock(&mu_);
  return !changed_.AwaitFor(mu_, kFollowPeriod,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; });
}

void LogUploads::Run(Upload& upload, const v1::UploadRequest& request, bool too_many) {
  const auto stub = v1::Workers::NewStub(channel_());
  v1::UploadDone done;
  const auto stream = stub->Upload(&upload.context, &done);
  v1::UploadChunk chunk;
  chunk.set_upload(request.upload());
  chunk.mutable_chunk()->set_rank(request.rank());
  const auto fail = [&](const absl::Status& status) {
    chunk.mutable_chunk()->clear_data();
    chunk.mutable_chunk()->set_error(std::string(status.message()));
    stream->Write(chunk);
  };

  const AttemptKey attempt = KeyOf(request.id());
  const std::string path = sources_.log_file({attempt, request.rank()});
  const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDONLY);
  if (too_many) {
    fail(absl::ResourceExhaustedError(absl::StrCat("this worker is already sending ", kMaxUploads, " logs")));
  } else if (!file.ok()) {
    fail(absl::NotFoundError(absl::StrCat(
        "the log: ", file.status().message(),
        absl::IsNotFound(file.status()) ? absl::StrCat("; this worker keeps the logs of ", sources_.kept)
                                        : "")));
  } else {
    const int fd = file->get();
    absl::StatusOr<int64_t> offset = TailOffset(fd, request.tail_lines());
    std::string& data = *chunk.mutable_chunk()->mutable_data();
    int idle = 0;
    stream->Write(chunk);  // says which upload this is: of an empty log nothing else would come
    while (offset.ok()) {
      const bool live = sources_.is_live(attempt);  // before the read: what is written by then is read
      data.resize(kChunkBytes);
      const ssize_t got = ReadAt(fd, data.data(), data.size(), *offset);
      if (got < 0) {
        offset = absl::ErrnoToStatus(errno, absl::StrCat("read log ", path));
      } else if (got > 0) {
        data.resize(static_cast<size_t>(got));
        *offset += got;
        idle = 0;
        if (!stream->Write(chunk)) {
          break;
        }
      } else if (!request.follow() || !live || !Pause()) {
        break;
      } else if (++idle % kIdlePeriods == 0) {
        data.clear();
        if (!stream->Write(chunk)) {
          break;
        }
      }
    }
    if (!offset.ok()) {
      fail(offset.status());
    }
  }
  stream->WritesDone();
  stream->Finish();  // a controller that is gone asks again
}

}  // namespace tandem::worker
