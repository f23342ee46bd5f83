// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>

#include "tandem/v1/workers.pb.h"

namespace tandem::proto {

// One attempt of a job, by which controller and worker keep what they know of it. It is the only fence: what
// is said about another attempt than the current one changes nothing.
struct AttemptKey {
  std::string job;  // its id
  int attempt = 0;  // from 1
  auto operator<=>(const AttemptKey&) const = default;
};

AttemptKey KeyOf(const v1::AttemptId& id);
v1::AttemptId IdOf(const AttemptKey& key);

}  // namespace tandem::proto
