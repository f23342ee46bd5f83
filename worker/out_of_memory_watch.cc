// SPDX-License-Identifier: Apache-2.0
#include "worker/out_of_memory_watch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::worker {
namespace {

// A rank's death is noticed at once, but a machine without memory is slow.
constexpr absl::Duration kInterval = absl::Seconds(10);

std::string Gibibytes(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

void OutOfMemoryWatch::Look() {
  const absl::MutexLock lock(&mu_);
  const absl::Time now = clock_.Now();
  if (now - looked_ >= kInterval) {
    looked_ = now;
    before_ = newest_;
    newest_ = kills_();
  }
}

std::string OutOfMemoryWatch::WhyKilled(int64_t held_bytes) const {
  const absl::MutexLock lock(&mu_);
  return kills_() > before_ ? TextOf(held_bytes) : "";
}

std::string OutOfMemoryWatch::TextOf(int64_t held_bytes) const {
  return absl::StrCat("out of memory: the kernel killed it when it held ", Gibibytes(held_bytes), " of the ",
                      Gibibytes(memory_bytes_),
                      " that this worker and all its ranks have; give the job fewer ranks per worker or a "
                      "smaller micro-batch, or raise the limit");
}

}  // namespace tandem::worker
