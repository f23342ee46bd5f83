// SPDX-License-Identifier: Apache-2.0
#include "proto/attempt_key.h"

namespace tandem::proto {

AttemptKey KeyOf(const v1::AttemptId& id) { return {.job = id.job_id(), .attempt = id.attempt()}; }

v1::AttemptId IdOf(const AttemptKey& key) {
  v1::AttemptId id;
  id.set_job_id(key.job);
  id.set_attempt(key.attempt);
  return id;
}

}  // namespace tandem::proto
