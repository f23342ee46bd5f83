// SPDX-License-Identifier: Apache-2.0
#include "worker/local_rendezvous.h"

namespace tandem::worker {

void LocalRendezvous::Learn(const std::string& key, Value value) {
  const bool own = value.rank >= 0;
  if (!values.emplace(key, std::move(value)).second) {
    return;
  }
  if (own) {
    unsent.push_back(key);
  }
  if (const auto found = waiting.find(key); found != waiting.end()) {
    for (const int rank : found->second) {
      answers.emplace_back(rank, key);
    }
    std::erase(unasked, key);
    waiting.erase(found);
  }
}

void LocalRendezvous::Want(int rank, const std::string& key) {
  if (values.contains(key)) {
    answers.emplace_back(rank, key);
    return;
  }
  const auto [found, fresh] = waiting.try_emplace(key);
  found->second.insert(rank);
  if (fresh) {
    unasked.push_back(key);
  }
}

void LocalRendezvous::Forget(int rank) {
  for (auto& [key, ranks] : waiting) {
    ranks.erase(rank);
  }
}

void LocalRendezvous::SendAgain() {
  unsent.clear();
  for (const auto& [key, value] : values) {
    if (value.rank >= 0) {
      unsent.push_back(key);
    }
  }
  unasked.clear();
  for (const auto& [key, ranks] : waiting) {
    unasked.push_back(key);
  }
}

}  // namespace tandem::worker
