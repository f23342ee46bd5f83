// SPDX-License-Identifier: Apache-2.0
#include "controller/core/rendezvous.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::controller {
namespace {

// Returns the memory of a key and its value, or of a worker that waits for the key.
size_t Bytes(const std::string& key, const std::string& value = "") {
  constexpr size_t kOfMaps = 256;
  return key.size() + value.size() + kOfMaps;
}

// Adds `bytes` to what is kept for the worker, unless that exceeds its limit.
absl::Status Keep(size_t bytes, const v1::AttemptId& id, const std::string& worker, size_t& kept) {
  if (kept + bytes > Rendezvous::kMostBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", worker, " has set and waits for more in the rendezvous of job ", id.job_id(), " (attempt ",
        id.attempt(), ") than its ranks can need; allowed are ", Rendezvous::kMostBytes >> 20,
        " MiB of keys and values; it runs a broken build, or another program: replace it"));
  }
  kept += bytes;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> Rendezvous::Set(const v1::KvSet& set, const std::string& worker, Answer& answer) {
  Space& space = spaces_[KeyOf(set.id())];
  if (const auto first = space.values.find(set.key()); first != space.values.end()) {
    return first->second == set.value();
  }
  TANDEM_RETURN_IF_ERROR(Keep(Bytes(set.key(), set.value()), set.id(), worker, space.kept[worker]));
  space.values.emplace(set.key(), set.value());
  const auto waiting = space.waiting.find(set.key());
  if (waiting != space.waiting.end()) {
    *answer.value.mutable_id() = set.id();
    answer.value.set_key(set.key());
    answer.value.set_value(set.value());
    answer.workers.assign(waiting->second.begin(), waiting->second.end());
    for (const std::string& answered : answer.workers) {
      space.kept[answered] -= Bytes(set.key());
    }
    space.waiting.erase(waiting);
  }
  return true;
}

absl::StatusOr<bool> Rendezvous::Get(const v1::KvGet& get, const std::string& worker, v1::KvValue& value) {
  Space& space = spaces_[KeyOf(get.id())];
  const auto it = space.values.find(get.key());
  if (it == space.values.end()) {
    const auto waiting = space.waiting.find(get.key());
    if (waiting == space.waiting.end() || !waiting->second.contains(worker)) {
      TANDEM_RETURN_IF_ERROR(Keep(Bytes(get.key()), get.id(), worker, space.kept[worker]));
      space.waiting[get.key()].insert(worker);
    }
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
      space.kept[worker] -= it->second.erase(worker) * Bytes(it->first);
      it = it->second.empty() ? space.waiting.erase(it) : std::next(it);
    }
  }
}

void Rendezvous::Retain(const State& state) {
  for (auto it = spaces_.begin(); it != spaces_.end();) {
    it = IsConnecting(state, it->first) ? std::next(it) : spaces_.erase(it);
  }
}

}  // namespace tandem::controller
