// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "platform/regular_file.h"

namespace tandem::link {

// The progress of a rank, in a memory page that its trainer and the daemon both map; no messages, no locks.
// The daemon reads it every second and after the rank's death, so it knows the phase of a dead or hanging
// rank.
struct SharedPage {
  static constexpr int kMaxCommunicators = 32;

  // Written by the trainer.
  std::atomic<int64_t> attempt{0};
  std::atomic<int32_t> phase{0};  // tandem.v1.RankPhase
  // The step in progress, from 1; 0 before the first step and in the validation before it. While the
  // optimizer applies step N, this is N + 1 already, because both happen in one run of the program.
  std::atomic<int64_t> step{0};
  // The number of the instruction that finished last, counted through all programs of the stage
  // (StagePrograms::All(); -1: none yet), and when it finished (CLOCK_MONOTONIC).
  std::atomic<int64_t> instruction{-1};
  std::atomic<int64_t> progress_monotonic_ns{0};
  // How many collectives were started on each of the `num_communicators` communicators, in the order in which
  // the programs list these.
  std::atomic<int32_t> num_communicators{0};
  std::atomic<uint64_t> collectives[kMaxCommunicators] = {};
  // Written by the daemon: the CLOCK_BOOTTIME in ns at which the trainer exits, because its daemon has no
  // controller; 0: never. The daemon moves it on as long as the controller is heard.
  std::atomic<int64_t> orphan_deadline_boottime_ns{0};
};

// Owns a mapping of a page.
class MappedPage {
 public:
  // Creates a page in a memfd. Close-on-exec is set: the launcher passes a duplicate of fd() to the trainer.
  static absl::StatusOr<MappedPage> Create();

  // Maps the page of an inherited descriptor. Takes ownership of the descriptor, also on failure.
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
