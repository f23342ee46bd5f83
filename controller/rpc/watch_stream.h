// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "controller/rpc/watch_reader.h"
#include "platform/clock.h"
#include "platform/steady_condition.h"

namespace tandem::controller {

class WatchStream;

// The open Watch streams, and the thread that wakes streams that wait. A stream writes one response at a time
// and reads the next one after it, so a stuck client holds nothing but its own connection. Thread-safe.
class Watches {
 public:
  Watches(Store& store, History& history, const ProgressBoard& progress, const platform::Clock& clock);
  ~Watches();

  // Opens a stream, which belongs to gRPC until it is done.
  grpc::ServerWriteReactor<v1::WatchResponse>* Open(const v1::WatchRequest& request);

  // Wakes the streams, because there may be something new for them.
  void Poke() ABSL_LOCKS_EXCLUDED(mu_);

  // Ends every stream, now and later.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class WatchStream;

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(const WatchStream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<WatchStream>> All() ABSL_LOCKS_EXCLUDED(mu_);

  Store& store_;
  History& history_;
  const ProgressBoard& progress_;
  const platform::Clock& clock_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;  // of what follows
  bool poked_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<const WatchStream*, std::weak_ptr<WatchStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace tandem::controller
