#include <algorithm>

#include "controller/decide.h"

namespace tandem::controller {

void Observe(const Input& input, absl::Time now, State& state) {
  if (const auto* in = std::get_if<WorkerHello>(&input)) {
    const v1::Hello& hello = in->hello;
    WorkerEntry& worker = state.workers[hello.worker_id()];
    std::set<AttemptKey> listed;
    for (const v1::AttemptStatus& status : hello.inventory().attempts()) {
      listed.insert(KeyOf(status.id()));
    }
    const bool other_process = worker.incarnation != 0 && worker.incarnation != hello.incarnation();
    std::set<AttemptKey> missing;
    std::set<AttemptKey> reborn;
    for (const auto& [id, entry] : state.jobs) {
      if (!HasRanks(entry.job.state())) {
        continue;
      }
      const std::vector<std::string> workers = WorkersOf(entry.job);
      if (!std::binary_search(workers.begin(), workers.end(), hello.worker_id())) {
        continue;
      }
      const AttemptKey key = CurrentAttempt(entry.job);
      if (listed.count(key) > 0) {
        if (other_process) {
          reborn.insert(key);
        }
        continue;
      }
      // An attempt that was admitted may never have reached the worker: then it is simply sent again.
      const bool had_it = entry.runtime.accepted() || worker.attempts.count(key) > 0;
      if (had_it || entry.job.state() == v1::JOB_STATE_STOPPING) {
        missing.insert(key);
      }
    }
    worker.missing = std::move(missing);
    worker.reborn = std::move(reborn);
    worker.connected = true;
    worker.since = now;
    worker.session = in->session;
    worker.incarnation = hello.incarnation();
    worker.build = hello.build();
    worker.attempts.clear();
    worker.told.clear();
    for (const v1::AttemptStatus& status : hello.inventory().attempts()) {
      worker.told[KeyOf(status.id())] = now;
      v1::AttemptStatus& said = worker.attempts[KeyOf(status.id())];
      said = status;
      said.clear_values();
    }
    worker.inventory = hello.inventory();
    worker.inventory.clear_attempts();
  } else if (const auto* in = std::get_if<WorkerDisconnected>(&input)) {
    const auto it = state.workers.find(in->worker);
    if (it != state.workers.end() && it->second.session == in->session && it->second.connected) {
      it->second.connected = false;
      it->second.since = now;
    }
  } else if (const auto* in = std::get_if<AttemptReport>(&input)) {
    const auto it = state.workers.find(in->worker);
    if (it != state.workers.end()) {
      it->second.told[KeyOf(in->status.id())] = now;
      v1::AttemptStatus& said = it->second.attempts[KeyOf(in->status.id())];
      said = in->status;
      said.clear_values();
    }
  }
}

}  // namespace tandem::controller
