// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "platform/regular_file.h"

namespace tandem::link {

// The progress that a rank reports without a message: a memory page that trainer and daemon both map, no
// locks. The daemon samples it each second, and after a death: it is how the phase of a dead or silent rank
// is known.
struct SharedPage {
  static constexpr int kMaxCommunicators = 32;

  // Written by the trainer.
  std::atomic<int64_t> attempt{0};
  std::atomic<int32_t> phase{0};  // tandem.v1.RankPhase
  // The one in progress, from 1; 0 before the first, or in the validation before the first. It is the next
  // one already while the optimizer applies a step: that is a part of the run that computes the next.
  std::atomic<int64_t> step{0};
  // The instruction that finished last, counted through all programs, and when (CLOCK_MONOTONIC).
  std::atomic<int64_t> instruction{-1};
  std::atomic<int64_t> progress_monotonic_ns{0};
  // Collectives started, of each of the num_communicators communicators that the programs use, in the order
  // in which they list them.
  std::atomic<int32_t> num_communicators{0};
  std::atomic<uint64_t> collectives[kMaxCommunicators] = {};
  // Written by the daemon: CLOCK_BOOTTIME in ns after which the trainer, having heard of no controller,
  // exits; 0: never.
  std::atomic<int64_t> orphan_deadline_boottime_ns{0};
};

// A mapping of a page.
class MappedPage {
 public:
  // A fresh page in a memfd; fd() is inherited by the trainer (close-on-exec is set: the launcher dups it).
  static absl::StatusOr<MappedPage> Create();

  // Maps the page of an inherited descriptor; takes the descriptor over, and closes it if this fails.
  static absl::StatusOr<MappedPage> Attach(int fd);

  SharedPage* operator->() const { return page_.get(); }
  SharedPage& operator*() const { return *page_; }
  int fd() const { return fd_.get(); }

 private:
  struct Unmap {
    void operator()(SharedPage* page) const;
  };

  MappedPage(platform::Descriptor fd, SharedPage* page) : fd_(std::move(fd)), page_(page) {}

  platform::Descriptor fd_;
  std::unique_ptr<SharedPage, Unmap> page_;
};

}  // namespace tandem::link
