// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "comm/communicator_factory.h"
#include "link/channel.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::trainer {

// The rendezvous of an attempt through the worker daemon's socket. Thread-safe.
class ChannelStore final : public comm::Store {
 public:
  // `channel` outlives it; the thread that receives from it hands every KvValue to Deliver.
  ChannelStore(link::Channel& channel, v1::AttemptId attempt, int rank);

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, absl::Duration patience) override;

  void Deliver(const v1::KvValue& value);

 private:
  link::Channel& channel_;
  const v1::AttemptId attempt_;
  const int rank_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::set<std::string> asked_;
  std::map<std::string, std::string> values_;
};

}  // namespace tandem::trainer
