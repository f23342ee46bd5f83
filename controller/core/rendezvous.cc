// SPDX-License-Identifier: Apache-2.0
#include "controller/core/rendezvous.h"

namespace tandem::controller {

bool Rendezvous::Set(const v1::KvSet& set, Answer& answer) {
  Space& space = spaces_[KeyOf(set.id())];
  const auto [it, inserted] = space.values.emplace(set.key(), set.value());
  if (!inserted) {
    return it->second == set.value();
  }
  const auto waiting = space.waiting.find(set.key());
  if (waiting != space.waiting.end()) {
    *answer.value.mutable_id() = set.id();
    answer.value.set_key(set.key());
    answer.value.set_value(set.value());
    answer.workers.assign(waiting->second.begin(), waiting->second.end());
    space.waiting.erase(waiting);
  }
  return true;
}

bool Rendezvous::Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value) {
  Space& space = spaces_[KeyOf(get.id())];
  const auto it = space.values.find(get.key());
  if (it == space.values.end()) {
    space.waiting[get.key()].insert(worker);
    return false;
  }
  *value.mutable_id() = get.id();
  value.set_key(get.key());
  value.set_value(it->second);
  return true;
}

void Rendezvous::Forget(const std::string& worker) {
  for (auto& [key, space] : spaces_) {
    for (auto it = space.waiting.begin(); it != space.waiting.end();) {
      it->second.erase(worker);
      it = it->second.empty() ? space.waiting.erase(it) : std::next(it);
    }
  }
}

void Rendezvous::Retain(const State& state) {
  for (auto it = spaces_.begin(); it != spaces_.end();) {
    it = IsLive(state, it->first) ? std::next(it) : spaces_.erase(it);
  }
}

}  // namespace tandem::controller
