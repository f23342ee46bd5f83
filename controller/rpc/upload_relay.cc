// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_relay.h"

#include "absl/strings/str_cat.h"
#include "controller/core/progress.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostChunks = 64;  // of one reader; then its uploads wait
constexpr absl::Duration kAnswer = absl::Seconds(10);

std::string WhatIsLost(const v1::RankSlot& slot, bool is_profile) {
  return is_profile ? absl::StrCat("rank ", slot.rank(), " runs there") : "the log lies there";
}

}  // namespace

uint64_t UploadRelay::Open(const std::vector<Wanted>& wanted, std::function<void()> more) {
  std::vector<std::pair<std::string, v1::UploadRequest>> requests;  // worker, request
  uint64_t id = 0;
  {
    const absl::MutexLock lock(&mu_);
    id = ++last_reader_;
    Reader& reader = readers_[id];
    reader.more = std::move(more);
    for (const Wanted& want : wanted) {
      v1::UploadRequest request = want.request;
      request.set_upload(random_.HexId(32));
      request.set_rank(want.slot.rank());
      uploads_[request.upload()] = {
          .reader = id,
          .slot = want.slot,
          .asked = clock_.Now(),
          .is_profile = request.has_profile(),
          .job_id = request.id().job_id(),
          .missing = request.profile().steps() * (request.profile().serialized() ? 2 : 1)};
      reader.open.insert(request.upload());
      requests.emplace_back(want.slot.worker(), std::move(request));
    }
  }
  for (const auto& [worker, request] : requests) {
    if (!sessions_.RequestUpload(worker, request)) {
      const absl::MutexLock lock(&mu_);
      const auto upload = uploads_.find(request.upload());
      if (upload != uploads_.end()) {
        Fail(request.upload(), absl::StrCat("worker ", worker, " is not connected; ",
                                            WhatIsLost(upload->second.slot, request.has_profile())));
      }
    }
  }
  return id;
}

UploadRelay::Next UploadRelay::Read(uint64_t id) {
  Next out;
  std::vector<std::function<void()>> resumes;
  {
    const absl::MutexLock lock(&mu_);
    const auto it = readers_.find(id);
    if (it == readers_.end()) {
      return {.end = true};
    }
    Reader& reader = it->second;
    if (!reader.chunks.empty()) {
      out.chunk = std::move(reader.chunks.front());
      reader.chunks.pop_front();
    } else {
      out.end = reader.open.empty();
    }
    if (reader.chunks.size() < kMostChunks / 2) {
      resumes.swap(reader.resumes);
    }
  }
  for (const std::function<void()>& resume : resumes) {
    resume();
  }
  return out;
}

void UploadRelay::Close(uint64_t id) {
  std::vector<std::function<void()>> resumes;
  {
    const absl::MutexLock lock(&mu_);
    const auto it = readers_.find(id);
    if (it == readers_.end()) {
      return;
    }
    for (const std::string& upload : it->second.open) {
      uploads_.erase(upload);
    }
    resumes.swap(it->second.resumes);
    readers_.erase(it);
  }
  for (const std::function<void()>& resume : resumes) {
    resume();  // so that the next chunk learns that nobody reads
  }
}

UploadRelay::Taken UploadRelay::Deliver(const v1::UploadChunk& chunk, const tls::Identity& identity,
                                        std::function<void()> resume) {
  std::function<void()> more;
  Taken taken = Taken::kOk;
  {
    const absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(chunk.upload());
    if (upload == uploads_.end() || !tls::MayBeWorker(identity, upload->second.slot.worker())) {
      return Taken::kGone;
    }
    upload->second.begun = true;
    if (!chunk.has_profile() && chunk.chunk().data().empty() && chunk.chunk().error().empty()) {
      return Taken::kOk;  // the worker asks whether anybody still reads
    }
    Reader& reader = readers_.at(upload->second.reader);
    v1::UploadChunk& last = reader.chunks.emplace_back(chunk);
    if (last.has_profile()) {
      last.mutable_profile()->set_rank(upload->second.slot.rank());
      upload->second.missing = last.profile().error().empty() ? upload->second.missing - 1 : 0;
    } else {
      last.mutable_chunk()->set_rank(upload->second.slot.rank());
    }
    more = reader.more;
    if (reader.chunks.size() >= kMostChunks) {
      reader.resumes.push_back(std::move(resume));
      taken = Taken::kFull;
    }
  }
  more();
  return taken;
}

void UploadRelay::Finish(const std::string& id, bool cut) {
  std::function<void()> more;
  {
    const absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(id);
    if (upload == uploads_.end()) {
      return;
    }
    Reader& reader = readers_.at(upload->second.reader);
    if (upload->second.missing > 0) {
      more = Fail(id, absl::StrCat("worker ", upload->second.slot.worker(),
                                   " stopped sending before every step had come"));
    } else if (cut) {
      more = Fail(id, absl::StrCat("worker ", upload->second.slot.worker(), " went away; ",
                                   WhatIsLost(upload->second.slot, upload->second.is_profile)));
    } else {
      reader.open.erase(id);
      more = reader.more;
      uploads_.erase(upload);
    }
  }
  more();
}

std::function<void()> UploadRelay::Fail(const std::string& id, const std::string& error) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end()) {
    return nullptr;
  }
  Reader& reader = readers_.at(upload->second.reader);
  v1::UploadChunk& chunk = reader.chunks.emplace_back();
  if (upload->second.is_profile) {
    chunk.mutable_profile()->set_rank(upload->second.slot.rank());
    chunk.mutable_profile()->set_error(error);
  } else {
    chunk.mutable_chunk()->set_rank(upload->second.slot.rank());
    chunk.mutable_chunk()->set_error(error);
  }
  reader.open.erase(id);
  uploads_.erase(upload);
  return reader.more;
}

void UploadRelay::WorkerGone(const std::string& worker) {
  std::vector<std::function<void()>> mores;
  {
    const absl::MutexLock lock(&mu_);
    std::vector<std::string> lost;
    for (const auto& [id, upload] : uploads_) {
      if (upload.slot.worker() == worker && (!upload.begun || upload.missing > 0)) {
        lost.push_back(id);
      }
    }
    for (const std::string& id : lost) {
      const Upload& upload = uploads_.at(id);
      mores.push_back(Fail(
          id, absl::StrCat("worker ", worker, " went away; ", WhatIsLost(upload.slot, upload.is_profile))));
    }
  }
  for (const std::function<void()>& more : mores) {
    more();
  }
}

void UploadRelay::Tick() {
  std::vector<std::function<void()>> mores;
  {
    const absl::MutexLock lock(&mu_);
    std::vector<std::pair<std::string, std::string>> late;  // id, why
    for (const auto& [id, upload] : uploads_) {
      if (!upload.begun && clock_.Now() - upload.asked > kAnswer) {
        late.emplace_back(id, absl::StrCat("worker ", upload.slot.worker(), " has not begun to send within ",
                                           absl::FormatDuration(kAnswer)));
      } else if (upload.is_profile && upload.missing > 0) {
        // No rank records a step that none of them can end.
        const std::optional<v1::Progress> progress = progress_.Find(upload.job_id);
        if (progress && progress->stalled()) {
          late.emplace_back(id, StallText(*progress));
        }
      }
    }
    for (const auto& [id, why] : late) {
      mores.push_back(Fail(id, why));
    }
  }
  for (const std::function<void()>& more : mores) {
    more();
  }
}

}  // namespace tandem::controller
