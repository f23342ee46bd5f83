// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/sessions.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/rpc/session.h"
#include "controller/rpc/streams.h"
#include "proto/reasons.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostContenders = 16;  // for one id; others try again until there is room

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* Sessions::Open(Engine& engine,
                                                                                  const Caller& caller) {
  std::shared_ptr<Session> session = std::make_shared<Session>(*this, engine, random_.HexId(12), caller);
  bool closed = false;
  {
    const absl::MutexLock lock(&mu_);
    closed = closed_;
    all_[session.get()] = session;
  }
  session->Start();
  if (closed) {
    session->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the controller is shutting down"));
  }
  return session.get();
}

void Sessions::Options::FitTo(absl::Duration worker_timeout) {
  constexpr absl::Duration kShortestInterval = absl::Milliseconds(50);  // workers send no more often
  silence = std::max(4 * kShortestInterval, std::min(silence, worker_timeout / 2));
  heartbeat_interval = std::clamp(silence / 4, kShortestInterval, heartbeat_interval);
}

std::optional<v1::Refused> Sessions::Admit(const v1::Hello& hello, const std::shared_ptr<Session>& session) {
  const absl::Time now = clock_.Now();
  const absl::Time awake_since = AwakeSince();
  std::shared_ptr<Session> former;
  {
    const absl::MutexLock lock(&mu_);
    Holder& holder = by_worker_[hello.worker_id()];
    std::shared_ptr<Session>& current = holder.session;
    const Session::Peer other = current == nullptr ? Session::Peer() : current->peer();
    if (current != nullptr && other.incarnation != hello.incarnation()) {
      // A process that has died, and may be followed by this one, would by then have been silent for too
      // long.
      const absl::Duration patience = options_.silence + 2 * options_.heartbeat_interval;
      if (holder.contenders.size() >= kMostContenders) {
        // These have been answered or no longer try, as when a service manager starts one process after
        // another.
        std::erase_if(holder.contenders,
                      [&](const auto& contender) { return now - contender.second > 2 * patience; });
      }
      if (holder.contenders.size() < kMostContenders) {
        holder.contenders.emplace(hello.incarnation(), now);
      }
      const auto contender = holder.contenders.find(hello.incarnation());
      const bool stays = contender != holder.contenders.end() &&
                         now - std::max(contender->second, awake_since) > patience &&
                         now - other.last_seen <= 2 * options_.heartbeat_interval;
      return Refusal(proto::ReasonCode("WorkerIdInUse"),
                     absl::StrCat("worker_id ", hello.worker_id(),
                                  " is connected from another process; give each worker its own --id, or "
                                  "stop the other one"),
                     /*final=*/stays && !other.draining);
    }
    former = std::exchange(current, session);
  }
  if (former != nullptr) {
    // The same process has connected again before its old stream was known to be broken.
    former->End(grpc::Status(grpc::StatusCode::ABORTED, "the worker has opened another session"));
  }
  return std::nullopt;
}

void Sessions::Leave(const Session* session) {
  std::string worker;
  {
    const absl::MutexLock lock(&mu_);
    all_.erase(session);
    const auto it = by_worker_.find(session->peer().worker);
    if (it != by_worker_.end() && it->second.session.get() == session) {
      worker = it->first;
      by_worker_.erase(it);
    }
  }
  if (!worker.empty() && gone_) {
    gone_(worker);
  }
}

std::shared_ptr<Session> Sessions::Find(const std::string& worker) const {
  const absl::MutexLock lock(&mu_);
  const auto it = by_worker_.find(worker);
  return it == by_worker_.end() ? nullptr : it->second.session;
}

void Sessions::Push(const std::string& worker, const std::string& id, const v1::Assignments& assignments) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session != nullptr && session->id() == id) {
    session->Send(assignments);
  }
}

void Sessions::Send(const std::string& worker, const v1::KvValue& value) {
  if (const std::shared_ptr<Session> session = Find(worker)) {
    session->Send(value);
  }
}

bool Sessions::RequestUpload(const std::string& worker, const v1::UploadRequest& request) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session != nullptr) {
    session->Send(request);
  }
  return session != nullptr;
}

std::vector<std::shared_ptr<Session>> Sessions::All() const {
  const absl::MutexLock lock(&mu_);
  return LiveOf(all_);
}

void Sessions::SendHeartbeats() {
  const absl::Time now = clock_.Now();
  const absl::Time awake_since = AwakeSince();
  for (const std::shared_ptr<Session>& session : All()) {
    if (now - std::max(session->peer().last_seen, awake_since) > options_.silence) {
      session->End(grpc::Status(
          grpc::StatusCode::DEADLINE_EXCEEDED,
          absl::StrCat("no message for ", absl::FormatDuration(options_.silence), "; heartbeat every ",
                       absl::FormatDuration(options_.heartbeat_interval))));
    } else {
      session->SendHeartbeat();
    }
  }
}

void Sessions::Close() {
  {
    const absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  for (const std::shared_ptr<Session>& session : All()) {
    session->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the controller is shutting down"));
  }
}

bool Sessions::closed() const {
  const absl::MutexLock lock(&mu_);
  return closed_;
}

absl::Time Sessions::LastSeen(const std::string& worker) const {
  const std::shared_ptr<Session> session = Find(worker);
  return session == nullptr ? absl::InfinitePast() : session->peer().last_seen;
}

}  // namespace tandem::controller
