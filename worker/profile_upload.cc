// SPDX-License-Identifier: Apache-2.0
#include "worker/profile_upload.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::worker {
namespace {

constexpr size_t kMostUploads = 1024;           // a rank each
constexpr size_t kMostBytes = size_t{3} << 20;  // of a step; a message holds 4 MiB
constexpr std::chrono::seconds kAskPeriod{1};   // whether anybody reads still

}  // namespace

struct ProfileUploads::Upload {
  RankKey rank;
  v1::UploadRequest request;
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context;
  std::deque<v1::ProfiledStep> steps;  // guarded by mu_, like the rest below
  bool done = false;
  std::thread thread;
};

ProfileUploads::ProfileUploads() = default;
ProfileUploads::~ProfileUploads() { Stop(); }

void ProfileUploads::Stop() {
  std::list<std::unique_ptr<Upload>> uploads;
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    uploads.swap(uploads_);
    changed_.notify_all();
  }
  for (const std::unique_ptr<Upload>& upload : uploads) {
    upload->context.TryCancel();
  }
  for (const std::unique_ptr<Upload>& upload : uploads) {
    upload->thread.join();
  }
}

void ProfileUploads::Start(const std::shared_ptr<grpc::Channel>& channel, const v1::UploadRequest& request) {
  std::vector<std::unique_ptr<Upload>> ended;  // their threads need mu_ no more
  {
    const std::lock_guard lock(mu_);
    for (auto it = uploads_.begin(); it != uploads_.end();) {
      if ((*it)->done) {
        ended.push_back(std::move(*it));
        it = uploads_.erase(it);
      } else {
        ++it;
      }
    }
    // Beyond that nothing is begun, which the controller notices.
    if (!stopping_ && uploads_.size() < kMostUploads) {
      Upload& upload = *uploads_.emplace_back(std::make_unique<Upload>());
      upload.rank = {KeyOf(request.id()), request.rank()};
      upload.request = request;
      upload.channel = channel;
      const auto kept = kept_.find(upload.rank);
      if (kept != kept_.end() && kept->second.id == request.profile().id()) {
        upload.steps.assign(kept->second.steps.begin(), kept->second.steps.end());
        kept_.erase(kept);
      }
      upload.thread = std::thread([this, &upload] { Run(upload); });
    }
  }
  for (const std::unique_ptr<Upload>& upload : ended) {
    upload->thread.join();
  }
}

void ProfileUploads::Add(const RankKey& rank, v1::ProfiledStep step) {
  const std::lock_guard lock(mu_);
  for (const std::unique_ptr<Upload>& upload : uploads_) {
    if (upload->rank == rank && upload->request.profile().id() == step.id() && !upload->done) {
      upload->steps.push_back(std::move(step));
      changed_.notify_all();
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
  const std::lock_guard lock(mu_);
  ranks_.insert(rank);
}

void ProfileUploads::RankGone(const RankKey& rank) {
  const std::lock_guard lock(mu_);
  ranks_.erase(rank);
  kept_.erase(rank);
  changed_.notify_all();
}

void ProfileUploads::Run(Upload& upload) {
  const auto stub = v1::Workers::NewStub(upload.channel);
  v1::UploadDone answer;
  const auto stream = stub->Upload(&upload.context, &answer);
  v1::UploadChunk chunk;
  chunk.set_upload(upload.request.upload());
  bool open = stream->Write(chunk);
  bool last = false;
  while (open && !last) {
    std::optional<v1::ProfiledStep> step;
    bool gone = false;
    {
      std::unique_lock lock(mu_);
      changed_.wait_for(lock, kAskPeriod,
                        [&] { return stopping_ || !upload.steps.empty() || !ranks_.contains(upload.rank); });
      if (stopping_) {
        break;
      }
      gone = !ranks_.contains(upload.rank);
      if (!upload.steps.empty()) {
        step = std::move(upload.steps.front());
        upload.steps.pop_front();
      }
    }
    chunk.clear_profile();
    if (step.has_value()) {
      v1::ProfileChunk& profile = *chunk.mutable_profile();
      *profile.mutable_timeline() = std::move(*step->mutable_timeline());
      last = step->last();
      if (const size_t bytes = profile.ByteSizeLong(); bytes > kMostBytes) {
        profile.set_error(absl::StrCat("a step of ", profile.timeline().start_ns_size(),
                                       " instructions takes ", bytes, " bytes; at most ", kMostBytes,
                                       " can be sent"));
        profile.clear_timeline();
        last = true;
      }
    } else if (gone) {
      chunk.mutable_profile()->set_error(
          absl::StrCat("rank ", upload.rank.rank, " ended before every step was recorded"));
      last = true;
    }
    open = stream->Write(chunk);
  }
  stream->WritesDone();
  stream->Finish();  // the controller reports to its reader what was lost
  const std::lock_guard lock(mu_);
  upload.done = true;
}

}  // namespace tandem::worker
