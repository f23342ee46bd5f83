#include "comm/memory_store.h"

#include "comm/communicator.h"

namespace tandem::comm {

void MemoryStore::Set(const std::string& key, const std::string& value) {
  const absl::MutexLock lock(&mu_);
  const auto [entry, added] = values_.emplace(key, value);
  if (!added && entry->second != value)
    throw CommError("rendezvous: key " + key + " is set already, to another value");
}

std::string MemoryStore::Get(const std::string& key, absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  const auto is_there = [this, &key]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return values_.contains(key); };
  if (!mu_.AwaitWithDeadline(absl::Condition(&is_there), deadline)) {
    throw CommError("rendezvous: nobody has set key " + key + " in time");
  }
  return values_.at(key);
}

}  // namespace tandem::comm
