// SPDX-License-Identifier: Apache-2.0
#include "worker/profile_upload.h"

#include <grpcpp/channel.h>

#include <deque>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/steady_condition.h"
#include "platform/thread.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::worker {
namespace {

constexpr size_t kMostUploads = 1024;                    // a rank each
constexpr size_t kMostBytes = size_t{3} << 20;           // of a step; a message holds 4 MiB
constexpr absl::Duration kAskPeriod = absl::Seconds(1);  // whether anybody reads still

}  // namespace

// What one request asks for, on a stream and a thread of its own. Thread-safe.
class ProfileUploads::Upload {
 public:
  // `steps`: those recorded before the request came. `rank_runs`: whether more may come.
  Upload(std::shared_ptr<grpc::Channel> channel, v1::UploadRequest request,
         std::vector<v1::ProfiledStep> steps, bool rank_runs)
      : channel_(std::move(channel)),
        request_(std::move(request)),
        rank_{KeyOf(request_.id()), request_.rank()},
        rank_runs_(rank_runs),
        steps_(std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end())) {}

  // An error: there is no thread for it, and nothing is sent.
  absl::Status Begin() {
    TANDEM_ASSIGN_OR_RETURN(thread_, platform::StartThread([this] { Run(); }));
    return absl::OkStatus();
  }

  // Waits for the stream to end.
  ~Upload() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  const RankKey& rank() const { return rank_; }

  bool done() const ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return done_;
  }

  // False: the step is not of the profile that was asked for, or the upload is over; it stays the caller's.
  bool Take(v1::ProfiledStep& step) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (done_ || request_.profile().id() != step.id()) {
      return false;
    }
    steps_.push_back(std::move(step));
    changed_.NotifyAll();
    return true;
  }

  void SetRankRuns(bool runs) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    rank_runs_ = runs;
    changed_.NotifyAll();
  }

  void Cancel() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      cancelled_ = true;
      changed_.NotifyAll();
    }
    context_.TryCancel();
  }

 private:
  // What to send next; nothing: that somebody still records.
  struct Next {
    std::optional<v1::ProfiledStep> step;
    bool rank_gone = false;
  };

  // Waits for it, at most kAskPeriod. nullopt: it was cancelled.
  std::optional<Next> WaitForNext() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, kAskPeriod, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return cancelled_ || !steps_.empty() || !rank_runs_;
    });
    if (cancelled_) {
      return std::nullopt;
    }
    Next next{.rank_gone = !rank_runs_};
    if (!steps_.empty()) {
      next.step = std::move(steps_.front());
      steps_.pop_front();
    }
    return next;
  }

  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    const auto stub = v1::Workers::NewStub(channel_);
    v1::UploadDone answer;
    const auto stream = stub->Upload(&context_, &answer);
    v1::UploadChunk chunk;
    chunk.set_upload(request_.upload());
    bool open = stream->Write(chunk);
    bool last = false;
    while (open && !last) {
      std::optional<Next> next = WaitForNext();
      if (!next) {
        break;
      }
      chunk.clear_profile();
      if (next->step.has_value()) {
        v1::ProfileChunk& profile = *chunk.mutable_profile();
        *profile.mutable_timeline() = std::move(*next->step->mutable_timeline());
        last = next->step->last();
        if (const size_t bytes = profile.ByteSizeLong(); bytes > kMostBytes) {
          profile.set_error(absl::StrCat("a step of ", profile.timeline().start_ns_size(),
                                         " instructions takes ", bytes, " bytes; at most ", kMostBytes,
                                         " can be sent"));
          profile.clear_timeline();
          last = true;
        }
      } else if (next->rank_gone) {
        chunk.mutable_profile()->set_error(
            absl::StrCat("rank ", rank_.rank, " ended before every step was recorded"));
        last = true;
      }
      open = stream->Write(chunk);
    }
    stream->WritesDone();
    stream->Finish();  // the controller reports to its reader what was lost
    const absl::MutexLock lock(&mu_);
    done_ = true;
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const v1::UploadRequest request_;
  const RankKey rank_;
  grpc::ClientContext context_;
  mutable absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of what follows
  bool rank_runs_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::ProfiledStep> steps_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

ProfileUploads::ProfileUploads() = default;
ProfileUploads::~ProfileUploads() { Stop(); }

void ProfileUploads::Stop() {
  std::list<std::unique_ptr<Upload>> uploads;
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
    uploads.swap(uploads_);
  }
  for (const std::unique_ptr<Upload>& upload : uploads) {
    upload->Cancel();
  }
}

void ProfileUploads::Start(const std::shared_ptr<grpc::Channel>& channel, const v1::UploadRequest& request) {
  std::vector<std::unique_ptr<Upload>> ended;  // which go outside of the lock
  const absl::MutexLock lock(&mu_);
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    if ((*it)->done()) {
      ended.push_back(std::move(*it));
      it = uploads_.erase(it);
    } else {
      ++it;
    }
  }
  // Beyond that nothing is begun, which the controller notices.
  if (stopping_ || uploads_.size() >= kMostUploads) {
    return;
  }
  const RankKey rank{KeyOf(request.id()), request.rank()};
  std::vector<v1::ProfiledStep> steps;
  const auto kept = kept_.find(rank);
  if (kept != kept_.end() && kept->second.id == request.profile().id()) {
    steps = std::move(kept->second.steps);
    kept_.erase(kept);
  }
  auto upload = std::make_unique<Upload>(channel, request, std::move(steps), ranks_.contains(rank));
  if (const absl::Status begun = upload->Begin(); !begun.ok()) {
    platform::Log(platform::LogLevel::kWarning, "a profile cannot be sent",
                  {{"job", request.id().job_id()}, {"error", std::string(begun.message())}});
    return;
  }
  uploads_.push_back(std::move(upload));
}

void ProfileUploads::Add(const RankKey& rank, v1::ProfiledStep step) {
  const absl::MutexLock lock(&mu_);
  for (const std::unique_ptr<Upload>& upload : uploads_) {
    if (upload->rank() == rank && upload->Take(step)) {
      return;
    }
  }
  Kept& kept = kept_[rank];
  if (kept.id != step.id()) {
    kept = {.id = step.id()};
  }
  kept.steps.push_back(std::move(step));
}

void ProfileUploads::RankStarted(const RankKey& rank) {
  const absl::MutexLock lock(&mu_);
  ranks_.insert(rank);
  SetRankRuns(rank, true);
}

void ProfileUploads::RankGone(const RankKey& rank) {
  const absl::MutexLock lock(&mu_);
  ranks_.erase(rank);
  kept_.erase(rank);
  SetRankRuns(rank, false);
}

void ProfileUploads::SetRankRuns(const RankKey& rank, bool runs) {
  for (const std::unique_ptr<Upload>& upload : uploads_) {
    if (upload->rank() == rank) {
      upload->SetRankRuns(runs);
    }
  }
}

}  // namespace tandem::worker
