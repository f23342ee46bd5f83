// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/engine.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/sessions.h"
#include "controller/rpc/streams.h"
#include "proto/protocol.h"

namespace tandem::controller {

// Makes the answer to a worker that is refused. `final`: it must not try again.
v1::Refused Refusal(std::string reason, std::string message, bool final);

// One stream of Workers.Session. It sends state, so what it sends next replaces what was not sent yet, and a
// slow worker costs no memory. Thread-safe.
class Session : public WritingStream<grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>,
                                     v1::ControllerMessage, Session> {
 public:
  // `caller` has opened the stream.
  Session(Sessions& sessions, Engine& engine, std::string id, Caller caller);

  void Start() ABSL_LOCKS_EXCLUDED(mu_);

  const std::string& id() const { return id_; }
  // The worker as it is known now.
  struct Peer {
    std::string worker;  // "" until its hello is admitted
    uint64_t incarnation = 0;
    bool draining = false;  // it has reported that it was asked to end
    absl::Time last_seen;
  };
  Peer peer() const ABSL_LOCKS_EXCLUDED(mu_);

  void Send(const v1::Assignments& assignments) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(const v1::KvValue& value) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(const v1::UploadRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  void SendHeartbeat() ABSL_LOCKS_EXCLUDED(mu_);

  // Disconnects the worker. The stream ends after the message that is being written.
  void End(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Handle() ABSL_LOCKS_EXCLUDED(mu_);
  void HandleHello() ABSL_LOCKS_EXCLUDED(mu_, hello_order_);
  // Returns why this Hello must be refused, or nullopt. Does not consider other sessions.
  std::optional<v1::Refused> WhyNot(const v1::Hello& hello) const;
  // Queues the welcome, with everything that is wanted of the worker.
  void Welcome(v1::Assignments assignments) ABSL_LOCKS_EXCLUDED(mu_);
  void Refuse(const v1::Refused& refused) ABSL_LOCKS_EXCLUDED(mu_);
  void Done(uint64_t seq) ABSL_LOCKS_EXCLUDED(mu_);
  void Gone() ABSL_LOCKS_EXCLUDED(mu_, hello_order_);
  void WriteNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint64_t Ack() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the callback that acknowledges the message with this number. Call it when the message is
  // committed, or with the error for which it is refused: then the session ends, and the worker sends the
  // message again in the next.
  std::function<void(const absl::Status&)> Taking(uint64_t seq);

  Sessions& sessions_;
  Engine& engine_;
  const std::string id_;
  const Caller caller_;
  v1::WorkerMessage incoming_;  // of the chain of reads

  // Held while the hello is posted to the engine, and while gone_ is set. The worker's next session ends this
  // one before it posts its own hello, so it never posts first. Acquired before mu_, which the engine's reply
  // needs.
  absl::Mutex hello_order_;

  Peer peer_ ABSL_GUARDED_BY(mu_);
  bool hello_seen_ ABSL_GUARDED_BY(mu_) = false;
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
  bool posted_ ABSL_GUARDED_BY(mu_) = false;  // the engine knows of this session
  bool gone_ ABSL_GUARDED_BY(mu_) = false;

  std::optional<v1::Refused> refused_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::Welcome> welcome_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::Assignments> assignments_ ABSL_GUARDED_BY(mu_);
  // By attempt and key, so that a value is sent once, however often the worker asks for it.
  std::map<std::pair<AttemptKey, std::string>, v1::KvValue> values_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::UploadRequest> uploads_ ABSL_GUARDED_BY(mu_);
  bool heartbeat_due_ ABSL_GUARDED_BY(mu_) = false;

  std::set<uint64_t> uncommitted_ ABSL_GUARDED_BY(mu_);
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  bool reading_paused_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::controller
