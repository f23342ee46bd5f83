// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/upload_relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/core/progress.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(10);
constexpr absl::Duration kIdle = absl::Seconds(10);  // of a reader, if the limit of all is reached

std::string WhatIsLost(const v1::RankSlot& slot, bool is_profile) {
  return is_profile ? absl::StrCat("rank ", slot.rank(), " runs there") : "the log lies there";
}

}  // namespace

absl::StatusOr<uint64_t> UploadRelay::Open(const std::string& caller, const std::vector<Wanted>& wanted,
                                           std::function<void()> more) {
  std::vector<std::pair<std::string, v1::UploadRequest>> requests;  // for each worker
  uint64_t id = 0;
  {
    const absl::MutexLock lock(&mu_);
    const size_t of_caller = static_cast<size_t>(std::count_if(
        readers_.begin(), readers_.end(), [&](const auto& entry) { return entry.second.caller == caller; }));
    if (of_caller >= limits_.readers_of_caller) {
      return absl::ResourceExhaustedError(
          absl::StrCat(caller, " reads ", limits_.readers_of_caller,
                       " logs and profiles now, the most that one caller may read at a time; end some"));
    }
    if (readers_.size() >= limits_.readers) {
      return absl::ResourceExhaustedError(
          absl::StrCat(limits_.readers,
                       " logs and profiles are being read now, the most that this "
                       "controller relays at a time; try again later"));
    }
    id = ++last_reader_;
    Reader& reader = readers_[id];
    reader.caller = caller;
    reader.took = clock_.Now();
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
    if (!request_(worker, request)) {
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
  const absl::MutexLock lock(&mu_);
  const auto it = readers_.find(id);
  if (it == readers_.end()) {
    out.end = true;
    return out;
  }
  Reader& reader = it->second;
  if (reader.chunks.empty()) {
    out.end = reader.open.empty();
    out.status = reader.status;
    return out;
  }
  const bool was_full = bytes_ >= limits_.bytes;
  const size_t bytes = reader.chunks.front().SpaceUsedLong();
  out.chunk = std::move(reader.chunks.front());
  reader.chunks.pop_front();
  reader.bytes -= bytes;
  bytes_ -= bytes;
  reader.took = clock_.Now();
  out.resumes = was_full ? TakeResumes() : TakeResumes(reader);
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
    for (auto& [upload, resume] : it->second.resumes) {
      resumes.push_back(std::move(resume));  // the next chunk then finds that the reader is gone
    }
    bytes_ -= it->second.bytes;
    readers_.erase(it);
    for (std::function<void()>& resume : TakeResumes()) {
      resumes.push_back(std::move(resume));
    }
  }
  for (const std::function<void()>& resume : resumes) {
    resume();
  }
}

UploadRelay::Taken UploadRelay::Deliver(const v1::UploadChunk& chunk, const tls::Identity& identity,
                                        std::function<void()> resume) {
  std::function<void()> more;
  {
    const absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(chunk.upload());
    if (upload == uploads_.end() || !tls::MayBeWorker(identity, upload->second.slot.worker())) {
      return Taken::kGone;
    }
    upload->second.begun = true;
    if (chunk.chunk().data().size() > kMostLogBytes) {
      return Taken::kTooLong;
    }
    if (!chunk.has_profile() && chunk.chunk().data().empty() && chunk.chunk().error().empty()) {
      return Taken::kOk;  // the worker asks whether the reader is still there
    }
    if (upload->second.waits) {
      return Taken::kGone;  // a second stream of one upload, which no worker of ours opens
    }
    Reader& reader = readers_.at(upload->second.reader);
    if (!HasRoom(reader)) {
      upload->second.waits = true;
      reader.resumes.emplace_back(chunk.upload(), std::move(resume));
      return Taken::kFull;
    }
    v1::UploadChunk next = chunk;
    if (next.has_profile()) {
      next.mutable_profile()->set_rank(upload->second.slot.rank());
      upload->second.missing = next.profile().error().empty() ? upload->second.missing - 1 : 0;
    } else {
      next.mutable_chunk()->set_rank(upload->second.slot.rank());
    }
    Add(std::move(next), reader);
    more = reader.more;
  }
  more();
  return Taken::kOk;
}

void UploadRelay::Add(v1::UploadChunk chunk, Reader& reader) {
  const size_t bytes = reader.chunks.emplace_back(std::move(chunk)).SpaceUsedLong();
  reader.bytes += bytes;
  bytes_ += bytes;
}

std::vector<std::function<void()>> UploadRelay::TakeResumes(Reader& reader) {
  std::vector<std::function<void()>> out;
  if (!HasRoom(reader)) {
    return out;
  }
  for (auto& [id, resume] : reader.resumes) {
    if (const auto upload = uploads_.find(id); upload != uploads_.end()) {
      upload->second.waits = false;
    }
    out.push_back(std::move(resume));
  }
  reader.resumes.clear();
  return out;
}

std::vector<std::function<void()>> UploadRelay::TakeResumes() {
  std::vector<std::function<void()>> out;
  for (auto& [id, reader] : readers_) {
    for (std::function<void()>& resume : TakeResumes(reader)) {
      out.push_back(std::move(resume));
    }
  }
  return out;
}

void UploadRelay::EndIdle(std::vector<std::function<void()>>& calls) {
  const absl::Time now = clock_.Now();
  for (auto& [id, reader] : readers_) {
    if (bytes_ < limits_.bytes) {
      break;
    }
    if (reader.chunks.empty() || now - reader.took < kIdle) {
      continue;
    }
    for (const std::string& upload : reader.open) {
      uploads_.erase(upload);
    }
    reader.open.clear();
    bytes_ -= std::exchange(reader.bytes, 0);
    reader.chunks.clear();
    reader.status = absl::ResourceExhaustedError(
        absl::StrCat("nothing of this log or profile was read for ", absl::FormatDuration(kIdle),
                     ", and the controller needs the memory for other readers; read it again"));
    for (auto& [upload, resume] : std::exchange(reader.resumes, {})) {
      calls.push_back(std::move(resume));
    }
    calls.push_back(reader.more);
  }
  for (std::function<void()>& resume : TakeResumes()) {
    calls.push_back(std::move(resume));
  }
}

size_t UploadRelay::bytes() const {
  const absl::MutexLock lock(&mu_);
  return bytes_;
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
  v1::UploadChunk chunk;
  if (upload->second.is_profile) {
    chunk.mutable_profile()->set_rank(upload->second.slot.rank());
    chunk.mutable_profile()->set_error(error);
  } else {
    chunk.mutable_chunk()->set_rank(upload->second.slot.rank());
    chunk.mutable_chunk()->set_error(error);
  }
  Add(std::move(chunk), reader);
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
        // While a rank stands still, no rank ends a step, so none can be recorded.
        const std::optional<v1::Progress> progress = progress_.Find(upload.job_id);
        if (progress && progress->stalled()) {
          late.emplace_back(id, StallText(*progress));
        }
      }
    }
    for (const auto& [id, why] : late) {
      mores.push_back(Fail(id, why));
    }
    if (bytes_ >= limits_.bytes) {
      EndIdle(mores);
    }
  }
  for (const std::function<void()>& more : mores) {
    more();
  }
}

}  // namespace tandem::controller
