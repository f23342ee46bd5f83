// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>

#include "tandem/v1/workers.pb.h"

namespace tandem::proto {

// Identifies one attempt of a job. It is the only fence between attempts: a message about an attempt that is
// not the current one changes nothing.
struct AttemptKey {
  std::string job;  // the job's id
  int attempt = 0;  // from 1
  auto operator<=>(const AttemptKey&) const = default;
};

AttemptKey KeyOf(const v1::AttemptId& id);
v1::AttemptId IdOf(const AttemptKey& key);

}  // namespace tandem::proto
