// SPDX-License-Identifier: Apache-2.0
#include "worker/uploads.h"

#include <fcntl.h>
#include <grpcpp/channel.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/thread.h"
#include "tandem/v1/workers.grpc.pb.h"
#include "worker/log_reader.h"

namespace tandem::worker {
namespace {

constexpr size_t kMostLogs = 64;
constexpr size_t kMostProfiles = 1024;  // one for each rank
constexpr size_t kLogChunkBytes = size_t{256} << 10;
constexpr size_t kMostStepBytes = size_t{3} << 20;  // a message has 4 MiB at most
constexpr absl::Duration kFollowPeriod = absl::Milliseconds(100);
constexpr absl::Duration kAskPeriod = absl::Seconds(1);  // then an empty chunk asks whether a reader is left

}  // namespace

struct Uploads::Upload {
  const std::shared_ptr<grpc::Channel> channel;
  const v1::UploadRequest request;
  const RankKey rank;
  grpc::ClientContext context = {};
  std::thread thread = {};
  // Guarded by mu_ of the Uploads.
  std::deque<v1::ProfiledStep> steps = {};  // of the requested profile, not yet sent
  bool done = false;
};

// The stream of one upload, used by its thread.
class Uploads::Stream {
 public:
  explicit Stream(Upload& upload)
      : upload_(upload),
        stub_(v1::Workers::NewStub(upload.channel)),
        writer_(stub_->Upload(&upload.context, &answer_)) {}

  // Returns false if the controller no longer reads.
  bool Send(v1::UploadChunk chunk) {
    chunk.set_upload(upload_.request.upload());
    return writer_->Write(chunk);
  }

  void SendError(const absl::Status& error) {
    v1::UploadChunk chunk;
    std::string& text = upload_.request.has_profile() ? *chunk.mutable_profile()->mutable_error()
                                                      : *chunk.mutable_chunk()->mutable_error();
    text = std::string(error.message());
    Send(std::move(chunk));
  }

  void Finish() {
    writer_->WritesDone();
    writer_->Finish();  // the controller tells the reader what was lost
  }

 private:
  Upload& upload_;
  const std::unique_ptr<v1::Workers::Stub> stub_;
  v1::UploadDone answer_;
  const std::unique_ptr<grpc::ClientWriter<v1::UploadChunk>> writer_;
};

Uploads::Uploads(Logs logs) : logs_(std::move(logs)) {}
Uploads::~Uploads() { Stop(); }

void Uploads::Stop() {
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

void Uploads::Start(std::shared_ptr<grpc::Channel> channel, const v1::UploadRequest& request) {
  const absl::MutexLock lock(&mu_);
  if (stopping_) {
    return;
  }
  std::erase_if(uploads_, [](const std::unique_ptr<Upload>& upload) {
    if (upload->done) {
      upload->thread.join();
    }
    return upload->done;
  });
  const auto num_others =
      std::count_if(uploads_.begin(), uploads_.end(), [&](const std::unique_ptr<Upload>& upload) {
        return upload->request.has_profile() == request.has_profile();
      });
  const bool too_many =
      static_cast<size_t>(num_others) >= (request.has_profile() ? kMostProfiles : kMostLogs);
  auto upload =
      std::make_unique<Upload>(std::move(channel), request, RankKey{KeyOf(request.id()), request.rank()});
  absl::StatusOr<std::thread> thread =
      platform::StartThread([this, &upload = *upload, too_many] { Run(upload, too_many); });
  if (!thread.ok()) {  // the controller notices it
    platform::Log(platform::LogLevel::kWarning, "a log or a profile cannot be sent",
                  {{"job", request.id().job_id()}, {"error", std::string(thread.status().message())}});
    return;
  }
  upload->thread = *std::move(thread);
  const auto kept = kept_.find(upload->rank);
  if (kept != kept_.end() && request.has_profile() && kept->second.id == request.profile().id()) {
    std::move(kept->second.steps.begin(), kept->second.steps.end(), std::back_inserter(upload->steps));
    kept_.erase(kept);
  }
  uploads_.push_back(std::move(upload));
}

void Uploads::Add(const RankKey& rank, v1::ProfiledStep step) {
  const absl::MutexLock lock(&mu_);
  for (const std::unique_ptr<Upload>& upload : uploads_) {
    if (upload->rank == rank && !upload->done && upload->request.profile().id() == step.id()) {
      upload->steps.push_back(std::move(step));
      changed_.NotifyAll();
      return;
    }
  }
  Kept& kept = kept_[rank];
  if (kept.id != step.id()) {
    kept = {.id = step.id()};
  }
  kept.steps.push_back(std::move(step));
}

void Uploads::RankStarted(const RankKey& rank) {
  const absl::MutexLock lock(&mu_);
  ranks_.insert(rank);
}

void Uploads::RankGone(const RankKey& rank) {
  const absl::MutexLock lock(&mu_);
  ranks_.erase(rank);
  kept_.erase(rank);
  changed_.NotifyAll();
}

void Uploads::Run(Upload& upload, bool too_many) {
  Stream stream(upload);
  const bool is_profile = upload.request.has_profile();
  const absl::Status sent =
      too_many           ? absl::ResourceExhaustedError(absl::StrCat("this worker is already sending ",
                                                           is_profile ? kMostProfiles : kMostLogs,
                                                           is_profile ? " profiles" : " logs"))
      : !stream.Send({}) ? absl::OkStatus()
      : is_profile       ? SendSteps(upload, stream)
                         : SendLog(upload.request, stream);
  if (!sent.ok()) {
    stream.SendError(sent);
  }
  stream.Finish();
  const absl::MutexLock lock(&mu_);
  upload.done = true;
}

absl::Status Uploads::SendLog(const v1::UploadRequest& request, Stream& stream) {
  const AttemptKey attempt = KeyOf(request.id());
  const std::string path = logs_.file({attempt, request.rank()});
  const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDONLY);
  if (!file.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "the log: ", file.status().message(),
        absl::IsNotFound(file.status()) ? absl::StrCat("; this worker keeps the logs of ", logs_.kept) : ""));
  }
  const auto with_path = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  absl::StatusOr<LogReader> log = LogReader::Open(file->get(), request.tail_lines());
  if (!log.ok()) {
    return with_path(log.status());
  }
  absl::Duration idle;
  while (true) {
    const bool live = logs_.is_live(attempt);  // before the read: what is written by then is read
    v1::UploadChunk chunk;
    std::string& data = *chunk.mutable_chunk()->mutable_data();
    if (const absl::Status read = log->Read(kLogChunkBytes, data); !read.ok()) {
      return with_path(read);
    }
    if (data.empty()) {
      const absl::MutexLock lock(&mu_);
      if (!request.follow() || !live ||
          changed_.AwaitFor(mu_, kFollowPeriod,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; })) {
        return absl::OkStatus();
      }
      idle += kFollowPeriod;
    }
    if (!data.empty() || idle >= kAskPeriod) {
      idle = absl::ZeroDuration();
      if (!stream.Send(std::move(chunk))) {
        return absl::OkStatus();
      }
    }
  }
}

absl::Status Uploads::SendSteps(Upload& upload, Stream& stream) {
  while (true) {
    v1::UploadChunk chunk;
    bool last = false;
    {
      const absl::MutexLock lock(&mu_);
      changed_.AwaitFor(mu_, kAskPeriod, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || !upload.steps.empty() || !ranks_.contains(upload.rank);
      });
      if (stopping_) {
        return absl::OkStatus();
      }
      if (!upload.steps.empty()) {
        last = upload.steps.front().last();
        *chunk.mutable_profile()->mutable_timeline() = std::move(*upload.steps.front().mutable_timeline());
        upload.steps.pop_front();
      } else if (!ranks_.contains(upload.rank)) {
        return absl::AbortedError(
            absl::StrCat("rank ", upload.rank.rank, " ended before every step was recorded"));
      }
    }
    if (const size_t bytes = chunk.profile().ByteSizeLong(); bytes > kMostStepBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a step of ", chunk.profile().timeline().start_ns_size(), " instructions takes ",
                       bytes, " bytes; at most ", kMostStepBytes, " can be sent"));
    }
    if (!stream.Send(std::move(chunk)) || last) {
      return absl::OkStatus();
    }
  }
}

}  // namespace tandem::worker
