// SPDX-License-Identifier: Apache-2.0
#include "trainer/channel_store.h"

#include <utility>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "tandem/v1/trainer.pb.h"

namespace tandem::trainer {
namespace {

void ThrowIfNotOk(const absl::Status& status) {
  if (!status.ok()) {
    throw comm::CommError("rendezvous: " + std::string(status.message()));
  }
}

}  // namespace

ChannelStore::ChannelStore(link::Channel& channel, v1::AttemptId attempt, int rank)
    : channel_(channel), attempt_(std::move(attempt)), rank_(rank) {}

void ChannelStore::Set(const std::string& key, const std::string& value) {
  v1::FromTrainer message;
  v1::KvSet& set = *message.mutable_set();
  *set.mutable_id() = attempt_;
  set.set_key(key);
  set.set_value(value);
  set.set_rank(rank_);
  ThrowIfNotOk(channel_.Send(message));
}

std::string ChannelStore::Get(const std::string& key, absl::Duration patience) {
  bool ask = false;
  {
    const absl::MutexLock lock(&mu_);
    ask = values_.count(key) == 0 && asked_.insert(key).second;
  }
  if (ask) {
    v1::FromTrainer message;
    v1::KvGet& get = *message.mutable_get();
    *get.mutable_id() = attempt_;
    get.set_key(key);
    get.set_rank(rank_);
    ThrowIfNotOk(channel_.Send(message));
  }
  const absl::MutexLock lock(&mu_);
  const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return values_.count(key) > 0; };
  if (!changed_.AwaitFor(mu_, patience, there)) {
    throw comm::CommError("rendezvous: no rank has set " + key + " within " + absl::FormatDuration(patience));
  }
  return values_[key];
}

void ChannelStore::Deliver(const v1::KvValue& value) {
  const absl::MutexLock lock(&mu_);
  values_[value.key()] = value.value();
  changed_.NotifyAll();
}

}  // namespace tandem::trainer
