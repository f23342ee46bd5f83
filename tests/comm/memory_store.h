// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "comm/communicator_factory.h"
#include "platform/steady_condition.h"

namespace tandem::comm {

// A store within one process. Thread-safe.
class MemoryStore final : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override ABSL_LOCKS_EXCLUDED(mu_);
  std::string Get(const std::string& key, absl::Duration patience) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  platform::SteadyCondition changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::comm
