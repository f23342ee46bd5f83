// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rate_limit.h"

#include <algorithm>
#include <iterator>

namespace tandem::controller {

absl::Duration RateLimit::Take(const std::string& key) {
  const absl::Time now = clock_.Now();
  const absl::Duration refill = absl::Seconds(burst_ / per_second_);
  const absl::MutexLock lock(&mu_);
  if (now - swept_ > refill) {
    swept_ = now;
    for (auto it = buckets_.begin(); it != buckets_.end();) {
      it = now - it->second.at > refill ? buckets_.erase(it) : std::next(it);
    }
  }
  Bucket& bucket = buckets_.try_emplace(key, Bucket{.tokens = burst_, .at = now}).first->second;
  bucket.tokens = std::min(burst_, bucket.tokens + absl::ToDoubleSeconds(now - bucket.at) * per_second_);
  bucket.at = now;
  if (bucket.tokens < 1) {
    return absl::Seconds((1 - bucket.tokens) / per_second_);
  }
  bucket.tokens -= 1;
  return absl::ZeroDuration();
}

}  // namespace tandem::controller
