// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/message_lite.h"

namespace tandem::link {

// Length-delimited protobuf frames on one end of a socket pair: between the worker daemon and one trainer.
// Owns the descriptor. Send is thread-safe (a frame is never torn); Receive is for one thread.
class Channel {
 public:
  static constexpr size_t kMaxFrameBytes = size_t{64} << 20;

  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return fd_; }

  // Blocks while the peer's buffer is full. UnavailableError when the peer is gone.
  absl::Status Send(const google::protobuf::MessageLite& message) ABSL_LOCKS_EXCLUDED(send_mu_);

  // Blocks for the next frame. false: the peer closed between frames. Errors: torn or oversized frame.
  absl::StatusOr<bool> Receive(google::protobuf::MessageLite& message);

  // Wakes a blocked Receive, which then sees the end. Any thread.
  void Shutdown();

 private:
  const int fd_;
  absl::Mutex send_mu_;  // guards what is written to fd_
};

}  // namespace tandem::link
