// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tenure.h"

namespace tandem::checkpoint {

absl::Status Tenure::Do(const std::function<absl::Status()>& deed) {
  const absl::MutexLock lock(&mu_);
  return ended_ ? absl::CancelledError("this process ends, and has given the checkpoint directory back")
                : deed();
}

void Tenure::End() {
  const absl::MutexLock lock(&mu_);
  ended_ = true;
}

}  // namespace tandem::checkpoint
