#include "controller/log_relay.h"

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostChunks = 64;  // of one reader; then its uploads wait
constexpr absl::Duration kAnswer = absl::Seconds(10);

}  // namespace

uint64_t LogRelay::Open(const std::vector<Wanted>& wanted, std::function<void()> more) {
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
      request.set_rank(want.place.rank());
      uploads_[request.upload()] = {.reader = id, .place = want.place, .asked = clock_.Now()};
      reader.open.insert(request.upload());
      requests.emplace_back(want.place.worker(), std::move(request));
    }
  }
  for (const auto& [worker, request] : requests) {
    if (!sessions_.Ask(worker, request)) {
      const absl::MutexLock lock(&mu_);
      Fail(request.upload(), absl::StrCat("worker ", worker, " is not connected; the log lies there"));
    }
  }
  return id;
}

LogRelay::Next LogRelay::Read(uint64_t id) {
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

void LogRelay::Close(uint64_t id) {
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
    resume();  // to be told, at the next chunk, that nobody reads
  }
}

LogRelay::Taken LogRelay::Deliver(const v1::UploadChunk& chunk, std::function<void()> resume) {
  std::function<void()> more;
  Taken taken = Taken::kOk;
  {
    const absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(chunk.upload());
    if (upload == uploads_.end()) {
      return Taken::kGone;
    }
    upload->second.begun = true;
    if (chunk.chunk().data().empty() && chunk.chunk().error().empty()) {
      return Taken::kOk;  // the worker asks whether anybody reads still
    }
    Reader& reader = readers_.at(upload->second.reader);
    v1::LogChunk& last = reader.chunks.emplace_back(chunk.chunk());
    last.set_rank(upload->second.place.rank());
    more = reader.more;
    if (reader.chunks.size() >= kMostChunks) {
      reader.resumes.push_back(std::move(resume));
      taken = Taken::kFull;
    }
  }
  more();
  return taken;
}

void LogRelay::Finish(const std::string& id) {
  std::function<void()> more;
  {
    const absl::MutexLock lock(&mu_);
    const auto upload = uploads_.find(id);
    if (upload == uploads_.end()) {
      return;
    }
    Reader& reader = readers_.at(upload->second.reader);
    reader.open.erase(id);
    more = reader.more;
    uploads_.erase(upload);
  }
  more();
}

std::function<void()> LogRelay::Fail(const std::string& id, const std::string& error) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end()) {
    return nullptr;
  }
  Reader& reader = readers_.at(upload->second.reader);
  v1::LogChunk& chunk = reader.chunks.emplace_back();
  chunk.set_rank(upload->second.place.rank());
  chunk.set_error(error);
  reader.open.erase(id);
  uploads_.erase(upload);
  return reader.more;
}

void LogRelay::WorkerGone(const std::string& worker) {
  std::vector<std::function<void()>> mores;
  {
    const absl::MutexLock lock(&mu_);
    std::vector<std::string> lost;
    for (const auto& [id, upload] : uploads_) {
      if (upload.place.worker() == worker && !upload.begun) {
        lost.push_back(id);
      }
    }
    for (const std::string& id : lost) {
      mores.push_back(Fail(id, absl::StrCat("worker ", worker, " went away; the log lies there")));
    }
  }
  for (const std::function<void()>& more : mores) {
    more();
  }
}

void LogRelay::Tick() {
  std::vector<std::function<void()>> mores;
  {
    const absl::MutexLock lock(&mu_);
    std::vector<std::pair<std::string, std::string>> late;
    for (const auto& [id, upload] : uploads_) {
      if (!upload.begun && clock_.Now() - upload.asked > kAnswer) {
        late.emplace_back(id, upload.place.worker());
      }
    }
    for (const auto& [id, worker] : late) {
      mores.push_back(Fail(id, absl::StrCat("worker ", worker, " has not sent the log within ",
                                            absl::FormatDuration(kAnswer))));
    }
  }
  for (const std::function<void()>& more : mores) {
    more();
  }
}

}  // namespace tandem::controller
