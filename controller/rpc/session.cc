// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/rpc_errors.h"
#include "platform/log.h"
#include "platform/shown_text.h"
#include "proto/protocol.h"
#include "proto/reasons.h"
#include "proto/time.h"

namespace tandem::controller {
namespace {

constexpr size_t kMostUncommittedMessages = 2048;  // beyond it, none is read until fewer than half are left
// The controller keeps the slots of every worker that it has seen.
constexpr size_t kMostSlotBytes = size_t{512} << 10;
// Notices may wait for hours for room in the store; meanwhile their worker's other messages are read.
static_assert(kMostUncommittedMessages / 2 > Engine::kMostHeld);

// Whether a message is acknowledged only when it is stored.
bool IsStored(const v1::WorkerMessage& message) {
  return message.has_hello() || message.has_status() || message.has_checkpoint() || message.has_set() ||
         message.has_get();
}

}  // namespace

v1::Refused Refusal(std::string reason, std::string message, bool final) {
  v1::Refused out;
  out.set_reason(std::move(reason));
  out.set_message(std::move(message));
  out.set_final(final);
  return out;
}

Session::Session(Sessions& sessions, Engine& engine, std::string id, Caller caller)
    : sessions_(sessions),
      engine_(engine),
      id_(std::move(id)),
      caller_(std::move(caller)),
      peer_{.last_seen = sessions.clock_.Now()} {}

void Session::Start() {
  Own();
  StartRead(&incoming_);
}

Session::Peer Session::peer() const {
  const absl::MutexLock lock(&mu_);
  return peer_;
}

void Session::Send(const v1::Assignments& assignments) {
  const absl::MutexLock lock(&mu_);
  // The list replaces the one that was not sent yet, except `forget`, whose entries are sent only once.
  v1::Assignments next = assignments;
  if (assignments_.has_value()) {
    next.mutable_forget()->MergeFrom(assignments_->forget());
  }
  assignments_ = std::move(next);
  WriteNext();
}

void Session::Send(const v1::KvValue& value) {
  const absl::MutexLock lock(&mu_);
  values_.insert_or_assign({KeyOf(value.id()), value.key()}, value);
  WriteNext();
}

void Session::Send(const v1::UploadRequest& request) {
  const absl::MutexLock lock(&mu_);
  uploads_.push_back(request);
  WriteNext();
}

void Session::SendHeartbeat() {
  const absl::MutexLock lock(&mu_);
  heartbeat_due_ = true;
  WriteNext();
}

void Session::End(const grpc::Status& status) {
  Gone();
  WritingStream::End(status);
}

void Session::Gone() {
  Peer peer;
  bool posted = false;
  {
    const absl::MutexLock order(&hello_order_);
    const absl::MutexLock lock(&mu_);
    if (std::exchange(gone_, true)) {
      return;
    }
    peer = peer_;
    posted = posted_;
  }
  sessions_.Leave(this);
  if (posted && !sessions_.closed()) {  // otherwise this controller is shutting down
    engine_.Post(WorkerDisconnected{.worker = peer.worker,
                                    .session = id_,
                                    .last_seen = std::max(peer.last_seen, sessions_.AwakeSince())});
  }
}

void Session::OnReadDone(bool ok) {
  if (!ok) {
    End(grpc::Status::OK);
    return;
  }
  Handle();
  const absl::MutexLock lock(&mu_);
  if (end_.has_value()) {
    return;
  }
  if (uncommitted_.size() >= kMostUncommittedMessages) {
    reading_paused_ = true;
    return;
  }
  StartRead(&incoming_);
}

void Session::OnDone() {
  Gone();
  OwnedStream::OnDone();
}

uint64_t Session::Ack() const { return uncommitted_.empty() ? received_ : *uncommitted_.begin() - 1; }

std::function<void(const absl::Status&)> Session::Taking(uint64_t seq) {
  return [self = shared_from_this(), seq](const absl::Status& taken) {
    if (taken.ok()) {
      self->Done(seq);
    } else {
      self->End(ToRpc(taken));
    }
  };
}

void Session::Done(uint64_t seq) {
  const absl::MutexLock lock(&mu_);
  uncommitted_.erase(seq);
  if (reading_paused_ && uncommitted_.size() < kMostUncommittedMessages / 2 && !end_.has_value()) {
    reading_paused_ = false;
    StartRead(&incoming_);
  }
  WriteNext();
}

void Session::Handle() {
  sessions_.AwakeSince();  // notes that this thread is awake
  std::string worker;
  bool hello_seen = false;
  const uint64_t seq = incoming_.seq();
  {
    const absl::MutexLock lock(&mu_);
    peer_.last_seen = sessions_.clock_.Now();
    received_ = std::max(received_, seq);
    if (IsStored(incoming_)) {
      uncommitted_.insert(seq);  // under the same lock as received_, so it is not acknowledged now
    }
    worker = peer_.worker;
    hello_seen = hello_seen_;
    if (gone_) {
      return;
    }
  }
  incoming_.DiscardUnknownFields();  // from another build; parts of a worker's messages are kept
  if (const absl::Status limits = CheckLimits(incoming_, kLimitsOfWorker); !limits.ok()) {
    End(ToRpc(limits));
    return;
  }
  if (!hello_seen) {
    if (!incoming_.has_hello()) {
      Refuse(Refusal(proto::ReasonCode("HelloMissing"), "the first message of a session must be hello",
                     /*final=*/true));
      return;
    }
    HandleHello();
    return;
  }
  switch (incoming_.item_case()) {
    case v1::WorkerMessage::kStatus:
      engine_.Post(AttemptReport{.worker = worker, .status = incoming_.status()},
                   [taken = Taking(seq)](const Engine::Reply& reply) { taken(reply.status); });
      break;
    case v1::WorkerMessage::kCheckpoint:
      engine_.Post(CheckpointNoticed{.worker = worker, .notice = incoming_.checkpoint()},
                   [taken = Taking(seq)](const Engine::Reply& reply) { taken(reply.status); });
      break;
    case v1::WorkerMessage::kSet:
      engine_.Set(worker, incoming_.set(), Taking(seq));
      break;
    case v1::WorkerMessage::kGet:
      engine_.Get(worker, incoming_.get(), Taking(seq));
      break;
    case v1::WorkerMessage::kHello:
      End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "hello must be the first message, and sent once"));
      break;
    case v1::WorkerMessage::kHeartbeat:
      if (incoming_.heartbeat().draining()) {
        {
          const absl::MutexLock lock(&mu_);
          peer_.draining = true;
        }
        engine_.Post(WorkerDraining{.worker = worker}, [](const Engine::Reply&) {});
      }
      break;
    case v1::WorkerMessage::ITEM_NOT_SET:
      break;
  }
}

std::optional<v1::Refused> Session::WhyNot(const v1::Hello& hello) const {
  if (!proto::IsWorkerId(hello.worker_id())) {
    return Refusal(proto::ReasonCode("BadWorkerId"), absl::StrCat("worker_id must be ", proto::kWorkerIds),
                   /*final=*/true);
  }
  if (!tls::MayBeWorker(caller_.identity, hello.worker_id())) {
    const std::string& name = caller_.identity.name;
    const std::string allowed =
        name.ends_with('*') ? absl::StrCat("any that begins with \"", name.substr(0, name.size() - 1), "\"")
                            : name;
    return Refusal(
        proto::ReasonCode("WorkerIdDenied"),
        absl::StrCat("the certificate of ", tls::ToText(caller_.identity), " is not that of worker ",
                     hello.worker_id(), "; start it with another --id, allowed: ", allowed,
                     "; or give it a certificate of its own"),
        /*final=*/true);
  }
  if (hello.protocol_min() > proto::kProtocol || hello.protocol_max() < proto::kProtocol) {
    return Refusal(proto::ReasonCode("ProtocolMismatch"),
                   absl::StrCat("worker ", hello.worker_id(), " (build ", hello.build(),
                                ") speaks protocols ", hello.protocol_min(), " to ", hello.protocol_max(),
                                ", this controller ", proto::kProtocol, "; run the same build on both"),
                   /*final=*/true);
  }
  const int64_t term = sessions_.options_.term;
  const bool ours = hello.store_id() == sessions_.options_.store_id;
  if (ours && hello.highest_term() > term) {
    return Refusal(
        proto::ReasonCode("OldTerm"),
        absl::StrCat(
            "worker ", hello.worker_id(), " has seen term ", hello.highest_term(),
            ", this controller is at term ", term,
            ": its state directory is older than what the worker has seen; start the controller "
            "on its newest state, or, to go on from a backup, restart the worker, which ends its jobs"),
        /*final=*/false);
  }
  size_t slot_bytes = 0;
  for (const v1::Slot& slot : hello.inventory().slots()) {
    slot_bytes += slot.ByteSizeLong();
  }
  if (slot_bytes > kMostSlotBytes) {
    return Refusal(
        proto::ReasonCode("BadInventory"),
        absl::StrCat("its ", hello.inventory().slots_size(), " slots take ", slot_bytes,
                     " bytes; allowed are at most ", kMostSlotBytes, "; start the worker with fewer --slots"),
        /*final=*/true);
  }
  std::set<int> indices;
  for (const v1::Slot& slot : hello.inventory().slots()) {
    if (!indices.insert(slot.index()).second) {
      return Refusal(proto::ReasonCode("BadInventory"),
                     absl::StrCat("slot ", slot.index(), " is listed twice"),
                     /*final=*/true);
    }
  }
  return std::nullopt;
}

void Session::HandleHello() {
  const v1::Hello& hello = incoming_.hello();
  if (const std::optional<v1::Refused> refused = WhyNot(hello)) {
    Refuse(*refused);
    return;
  }
  const std::shared_ptr<Session> self = shared_from_this();
  {
    const absl::MutexLock lock(&mu_);
    hello_seen_ = true;
    peer_.worker = hello.worker_id();
    peer_.incarnation = hello.incarnation();
    peer_.draining = hello.inventory().draining();
  }
  if (const std::optional<v1::Refused> refused = sessions_.Admit(hello, self)) {
    {
      const absl::MutexLock lock(&mu_);
      peer_.worker.clear();
    }
    Refuse(*refused);
    return;
  }
  const absl::MutexLock order(&hello_order_);
  {
    const absl::MutexLock lock(&mu_);
    if (gone_) {
      return;  // the worker has opened another session since this one was admitted
    }
    posted_ = true;
  }
  platform::Log(platform::LogLevel::kInfo, "worker connected",
                {{"worker", hello.worker_id()},
                 {"from", caller_.address},
                 {"build", hello.build()},
                 {"session", id_},
                 {"slots", absl::StrCat(hello.inventory().slots_size())},
                 {"attempts", absl::StrCat(hello.inventory().attempts_size())}});
  engine_.Post(WorkerHello{.session = id_, .hello = hello},
               [self, seq = incoming_.seq()](Engine::Reply reply) {
                 if (!reply.status.ok()) {
                   // The stream is ended, because the worker would stop all its ranks if it got an empty
                   // list. OnDone calls Gone(), which cannot be called here, since hello_order_ may be held.
                   self->WritingStream::End(ToRpc(reply.status));
                   return;
                 }
                 self->Welcome(std::move(reply.assignments));
                 self->Done(seq);
               });
}

void Session::Welcome(v1::Assignments assignments) {
  const Sessions::Options& options = sessions_.options_;
  v1::Welcome welcome;
  welcome.set_session(id_);
  welcome.set_term(options.term);
  welcome.set_store_id(options.store_id);
  if (options.orphan_timeout != absl::InfiniteDuration()) {
    *welcome.mutable_orphan_timeout() = proto::ToProto(options.orphan_timeout);
  }
  *welcome.mutable_heartbeat_interval() = proto::ToProto(options.heartbeat_interval);
  welcome.set_protocol(proto::kProtocol);
  *welcome.mutable_assignments() = std::move(assignments);
  const absl::MutexLock lock(&mu_);
  welcome_ = std::move(welcome);
}

void Session::Refuse(const v1::Refused& refused) {
  platform::Log(platform::LogLevel::kWarning, "a worker was refused",
                {{"worker", platform::Shown(incoming_.hello().worker_id(), 100)},
                 {"from", caller_.address},
                 {"reason", refused.reason()},
                 {"message", refused.message()}});
  Gone();
  const absl::MutexLock lock(&mu_);
  refused_ = refused;
  end_ = grpc::Status(
      refused.reason() == proto::ReasonCode("WorkerIdInUse")    ? grpc::StatusCode::ALREADY_EXISTS
      : refused.reason() == proto::ReasonCode("WorkerIdDenied") ? grpc::StatusCode::PERMISSION_DENIED
                                                                : grpc::StatusCode::FAILED_PRECONDITION,
      refused.message());
  WriteNext();
}

void Session::WriteNext() {
  if (writing_ || finished_) {
    return;
  }
  outgoing_.Clear();
  if (refused_.has_value()) {
    *outgoing_.mutable_refused() = *std::move(refused_);
    refused_.reset();
  } else if (end_.has_value()) {
    FinishWithEnd();
    return;
  } else if (welcome_.has_value()) {
    *outgoing_.mutable_welcome() = *std::move(welcome_);
    welcome_.reset();
    welcomed_ = true;
  } else if (!welcomed_) {
    return;
  } else if (!values_.empty()) {
    *outgoing_.mutable_value() = std::move(values_.begin()->second);
    values_.erase(values_.begin());
  } else if (assignments_.has_value()) {
    *outgoing_.mutable_assignments() = *std::move(assignments_);
    assignments_.reset();
  } else if (!uploads_.empty()) {
    *outgoing_.mutable_upload() = std::move(uploads_.front());
    uploads_.pop_front();
  } else if (heartbeat_due_ || Ack() != acknowledged_) {
    outgoing_.mutable_heartbeat();
    heartbeat_due_ = false;
  } else {
    return;
  }
  acknowledged_ = Ack();
  outgoing_.set_ack(acknowledged_);
  WriteOutgoing();
}

}  // namespace tandem::controller
