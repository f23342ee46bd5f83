// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "controller/engine.h"
#include "controller/rpc/callers.h"
#include "tandem/v1/workers.grpc.pb.h"

namespace tandem::controller {

// Knows when this process last stood still (SIGSTOP, a suspended machine, a virtual machine that is moved):
// when none of its threads called Touch for longer than `pause`. It heard nothing meanwhile, so the silence
// of others counts only from the end of the standstill. Thread-safe.
class Wakefulness {
 public:
  Wakefulness(absl::Time now, absl::Duration pause) : pause_(pause), last_(now), since_(now) {}

  // Records that a thread runs at `now`. Returns when the last standstill ended, or when this object was
  // made. Call it more often than once per `pause`.
  absl::Time Touch(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (now - last_ > pause_) {
      since_ = now;
    }
    last_ = std::max(last_, now);
    return since_;
  }

 private:
  const absl::Duration pause_;
  absl::Mutex mu_;
  absl::Time last_ ABSL_GUARDED_BY(mu_);
  absl::Time since_ ABSL_GUARDED_BY(mu_);
};

class Session;

// The open sessions of workers, through which messages reach them. Thread-safe.
class Sessions {
 public:
  struct Options {
    std::string store_id;
    int64_t term = 0;
    absl::Duration orphan_timeout = absl::Seconds(600);
    absl::Duration heartbeat_interval = absl::Seconds(1);
    absl::Duration silence = absl::Seconds(5);  // a stream without a message for longer is closed

    // Shortens heartbeat_interval and silence, so that a silent worker's stream is closed well before
    // `worker_timeout`.
    void FitTo(absl::Duration worker_timeout);
  };

  Sessions(const Options& options, const platform::Clock& clock, platform::Random& random)
      : options_(options),
        clock_(clock),
        random_(random),
        wakefulness_(clock.Now(), 2 * options.heartbeat_interval) {}

  // Makes the stream that `caller` opens. It belongs to gRPC until it is done.
  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ControllerMessage>* Open(Engine& engine,
                                                                          const Caller& caller);

  // Send something to a worker. It is dropped if the session is over: the worker sends its state again when
  // it reconnects.
  void Push(const std::string& worker, const std::string& session, const v1::Assignments& assignments);
  void Send(const std::string& worker, const v1::KvValue& value);
  // Returns false if the worker is not connected.
  bool RequestUpload(const std::string& worker, const v1::UploadRequest& request);

  absl::Duration heartbeat_interval() const { return options_.heartbeat_interval; }

  // Returns when the last standstill of the controller ended. Silence before that time says nothing about a
  // worker. Call at every tick.
  absl::Time AwakeSince() { return wakefulness_.Touch(clock_.Now()); }

  // Sends a heartbeat to every worker, and closes silent sessions. Call once every heartbeat_interval().
  void SendHeartbeats();

  // Ends every stream, now and later.
  void Close();
  bool closed() const ABSL_LOCKS_EXCLUDED(mu_);

  // Sets the callback that gets every worker whose session has ended, from any thread. Call it before the
  // first Open.
  void OnGone(std::function<void(const std::string& worker)> gone) { gone_ = std::move(gone); }

  // Returns when a connected worker was last heard from.
  absl::Time LastSeen(const std::string& worker) const;

 private:
  friend class Session;

  // Makes `session` the worker's session. Refuses it if another process with that id is connected, and for
  // good if that process has been connected for so long that it cannot have died unnoticed, was heard from
  // lately, and was not asked to end.
  std::optional<v1::Refused> Admit(const v1::Hello& hello, const std::shared_ptr<Session>& session);
  // Forgets a session that has ended, and calls `gone_` if it was still its worker's.
  void Leave(const Session* session);
  std::shared_ptr<Session> Find(const std::string& worker) const;
  std::vector<std::shared_ptr<Session>> All() const;

  // The session that holds a worker's id.
  struct Holder {
    std::shared_ptr<Session> session;
    std::map<uint64_t, absl::Time> contenders;  // by incarnation: when each was first refused
  };

  const Options options_;
  const platform::Clock& clock_;
  platform::Random& random_;
  std::function<void(const std::string&)> gone_;
  Wakefulness wakefulness_;

  mutable absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Holder> by_worker_ ABSL_GUARDED_BY(mu_);
  std::map<const Session*, std::weak_ptr<Session>> all_
      ABSL_GUARDED_BY(mu_);  // also sessions before their Hello
};

}  // namespace tandem::controller
