// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/communicator_factory.h"
#include "link/channel.h"
#include "platform/steady_condition.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::trainer {

// The key-value store for the rendezvous of an attempt, reached through the worker daemon's socket.
// Thread-safe.
class ChannelStore final : public comm::Store {
 public:
  // `channel` must outlive this object. The thread that receives from the channel must hand every KvValue to
  // Deliver.
  ChannelStore(link::Channel& channel, v1::AttemptId attempt, int rank);

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, absl::Duration patience) override ABSL_LOCKS_EXCLUDED(mu_);

  void Deliver(const v1::KvValue& value) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  link::Channel& channel_;
  const v1::AttemptId attempt_;
  const int rank_;
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::set<std::string> asked_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::trainer
