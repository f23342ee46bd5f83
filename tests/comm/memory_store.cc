// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/memory_store.h"

#include "comm/communicator.h"
#include "platform/clock.h"

namespace tandem::comm {

void MemoryStore::Set(const std::string& key, const std::string& value) {
  const absl::MutexLock lock(&mu_);
  const auto [entry, added] = values_.emplace(key, value);
  if (!added && entry->second != value) {
    throw CommError("rendezvous: key " + key + " is set already, to another value");
  }
  changed_.NotifyAll();
}

std::string MemoryStore::Get(const std::string& key, absl::Duration patience) {
  const absl::MutexLock lock(&mu_);
  const absl::Time deadline = platform::SteadyClock().Now() + patience;
  while (!values_.contains(key)) {
    const absl::Duration left = deadline - platform::SteadyClock().Now();
    if (left <= absl::ZeroDuration()) {
      throw CommError("rendezvous: nobody has set key " + key + " in time");
    }
    changed_.WaitFor(mu_, left);
  }
  return values_.at(key);
}

}  // namespace tandem::comm
