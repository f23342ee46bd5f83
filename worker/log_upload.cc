// SPDX-License-Identifier: Apache-2.0
#include "worker/log_upload.h"

#include <fcntl.h>
#include <grpcpp/channel.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/thread.h"
#include "tandem/v1/workers.grpc.pb.h"
#include "worker/log_reader.h"

namespace tandem::worker {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kMaxUploads = 64;
constexpr absl::Duration kFollowPeriod = absl::Milliseconds(100);
constexpr int kIdlePeriods = 10;  // then an empty chunk asks whether the controller still listens

}  // namespace

struct LogUploads::Upload {
  grpc::ClientContext context;
  std::thread thread;
  std::atomic<bool> done{false};
};

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
    absl::StatusOr<LogReader> log = LogReader::Open(file->get(), request.tail_lines());
    absl::Status read = log.status();
    std::string& data = *chunk.mutable_chunk()->mutable_data();
    int idle = 0;
    stream->Write(chunk);  // says which upload this is: of an empty log nothing else would come
    while (read.ok()) {
      const bool live = sources_.is_live(attempt);  // before the read: what is written by then is read
      read = log->Read(kChunkBytes, data);
      if (!read.ok()) {
        break;
      }
      if (!data.empty()) {
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
    if (!read.ok()) {
      fail(absl::Status(read.code(), absl::StrCat(path, ": ", read.message())));
    }
  }
  stream->WritesDone();
  stream->Finish();  // a controller that is gone asks again
}

}  // namespace tandem::worker
