// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/message_lite.h"

namespace tandem::link {

// One end of the socket pair between the worker daemon and a trainer: sends and receives length-delimited
// protobuf frames. Owns the descriptor. Send is thread-safe (frames do not mix); only one thread may call
// Receive.
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

  // Blocks until the next frame has been read. Returns false if the peer closed its end after a complete
  // frame, and an error if a frame is incomplete, too large or no such message.
  absl::StatusOr<bool> Receive(google::protobuf::MessageLite& message);

  // Makes a blocked Receive return as if the peer had closed its end. Callable from any thread.
  void Shutdown();

 private:
  const int fd_;
  absl::Mutex send_mu_;  // guards what is written to fd_
};

}  // namespace tandem::link
