// SPDX-License-Identifier: Apache-2.0
#include "controller/core/state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/reasons.h"

namespace tandem::controller {
namespace {

// A bound, because with a pool's certificate one machine can register under any number of ids.
constexpr size_t kMostAway = 1000;

// Counts the slots that live jobs use.
int SlotsInUse(const State& state, const std::string& worker) {
  int in_use = 0;
  for (const std::string& job : state.jobs.with_ranks()) {
    const auto& slots = Current(state.jobs.at(job).job).slots();
    in_use += static_cast<int>(std::count_if(
        slots.begin(), slots.end(), [&](const v1::RankSlot& slot) { return slot.worker() == worker; }));
  }
  return in_use;
}

}  // namespace

AttemptKey CurrentAttempt(const v1::Job& job) { return {job.id(), job.attempt()}; }

const v1::Attempt& Current(const v1::Job& job) { return job.attempts(job.attempts_size() - 1); }

std::vector<std::string> WorkersOf(const v1::Job& job) {
  std::set<std::string> names;
  if (job.attempt() > 0) {
    for (const v1::RankSlot& slot : Current(job).slots()) {
      names.insert(slot.worker());
    }
  }
  return {names.begin(), names.end()};
}

bool IsLive(const State& state, const AttemptKey& key) {
  const auto it = state.jobs.find(key.job);
  return it != state.jobs.end() && HasRanks(it->second.job.state()) &&
         it->second.job.attempt() == key.attempt;
}

bool IsConnecting(const State& state, const AttemptKey& key) {
  return IsLive(state, key) && !Current(state.jobs.at(key.job).job).has_ready();
}

bool RunsOn(const State& state, const AttemptKey& key, const std::string& worker) {
  if (!IsLive(state, key)) {
    return false;
  }
  const auto& slots = Current(state.jobs.at(key.job).job).slots();
  return std::any_of(slots.begin(), slots.end(),
                     [&](const v1::RankSlot& slot) { return slot.worker() == worker; });
}

const JobEntry* FindLive(const State& state, const std::string& id_or_name) {
  const auto it = state.jobs.find(id_or_name);
  if (it != state.jobs.end()) {
    return IsTerminal(it->second.job.state()) ? nullptr : &it->second;
  }
  const v1::Job* const named = state.jobs.FindLiveByName(id_or_name);
  return named == nullptr ? nullptr : &state.jobs.at(named->id());
}

const v1::AttemptStatus* StatusOf(const State& state, const std::string& worker, const AttemptKey& key) {
  const auto it = state.workers.find(worker);
  if (it == state.workers.end()) {
    return nullptr;
  }
  const auto status = it->second.attempts.find(key);
  return status == it->second.attempts.end() ? nullptr : &status->second;
}

const v1::RankStatus* StatusOf(const State& state, const v1::RankSlot& slot, const AttemptKey& key) {
  if (const v1::AttemptStatus* status = StatusOf(state, slot.worker(), key)) {
    for (const v1::RankStatus& rank : status->ranks()) {
      if (rank.rank() == slot.rank()) {
        return &rank;
      }
    }
  }
  return nullptr;
}

std::string WhyNotSchedulable(const State& state, const WorkerEntry& worker) {
  if (!worker.connected) {
    return proto::ReasonCode("NotConnected");
  }
  if (worker.inventory.draining()) {
    return proto::ReasonCode("Draining");
  }
  // Ranks of an attempt that is not wanted hold slots that only the worker knows.
  for (const auto& [key, status] : worker.attempts) {
    if (!status.ended() && !status.has_refused() && !IsLive(state, key)) {
      return worker.unknown.contains(key) ? proto::ReasonCode("RunsUnknownJob")
                                          : proto::ReasonCode("StoppingLeftovers");
    }
  }
  for (const v1::Slot& slot : worker.inventory.slots()) {
    if (slot.healthy()) {
      return "";
    }
  }
  return proto::ReasonCode("NoHealthySlots");
}

v1::Worker Describe(const State& state, const std::string& id) {
  v1::Worker out;
  out.set_id(id);
  const auto it = state.workers.find(id);
  if (it == state.workers.end()) {
    return out;
  }
  const WorkerEntry& worker = it->second;
  out.set_hostname(worker.inventory.hostname());
  out.set_connected(worker.connected);
  out.set_reason(WhyNotSchedulable(state, worker));
  out.set_schedulable(out.reason().empty());
  out.set_slots(worker.inventory.slots_size());
  if (worker.inventory.slots_size() > 0) {
    out.set_device(worker.inventory.slots(0).device());
  }
  out.set_gpus(
      static_cast<int>(std::count_if(worker.inventory.slots().begin(), worker.inventory.slots().end(),
                                     [](const v1::Slot& slot) { return slot.device() == v1::DEVICE_CUDA; })));
  out.set_gpus_unused(worker.inventory.gpus_unused());
  out.set_build(worker.build);
  out.set_slots_in_use(SlotsInUse(state, id));
  return out;
}

bool HasLeft(const WorkerEntry& worker) {
  return !worker.connected && worker.inventory.draining() &&
         std::all_of(worker.attempts.begin(), worker.attempts.end(),
                     [](const auto& item) { return item.second.ended() || item.second.has_refused(); });
}

void Prune(State& state) {
  state.jobs.RemoveEnded();
  std::erase_if(state.workers, [&state](const auto& item) {
    const auto& [id, worker] = item;
    return HasLeft(worker) && SlotsInUse(state, id) == 0;
  });
  std::vector<std::pair<absl::Time, std::string>> away;
  for (const auto& [id, worker] : state.workers) {
    if (!worker.connected) {
      away.emplace_back(worker.since, id);
    }
  }
  if (away.size() <= kMostAway) {
    return;
  }
  std::sort(away.begin(), away.end());
  size_t to_drop = away.size() - kMostAway;
  for (size_t i = 0; i < away.size() && to_drop > 0; ++i) {
    if (SlotsInUse(state, away[i].second) == 0) {
      state.workers.erase(away[i].second);
      --to_drop;
    }
  }
}

}  // namespace tandem::controller
