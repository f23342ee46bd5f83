// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "controller/rpc/http2_frames.h"

namespace tandem::controller {

// The server's side of an HTTP/2 connection whose client is not to be served. The first call ends with a
// status, so that the client's user reads that and not "Socket closed"; then the client is asked to go
// (GOAWAY), and what it still sends is dropped. Until then its bytes are cut into frames and never looked
// into; gRPC gets none of them. All answers together are shorter than kMostAnswers plus the status, whatever
// the client sends. Not thread-safe.
class CallRefuser {
 public:
  explicit CallRefuser(absl::Status why) : why_(std::move(why)) {}

  // What a client may send before its first call has begun: preface, settings, pings, headers. No answer but
  // the status is longer than what it answers.
  static constexpr size_t kMostAnswers = 4 << 10;

  // Appends the answers to `to_client`. False if the connection is to be closed once the client has taken
  // them: it does not speak HTTP/2, or has sent more than a client that begins calls.
  bool FromClient(std::string_view bytes, std::string& to_client);

 private:
  void TakeFrame(std::string_view payload, std::string& to_client);

  const absl::Status why_;
  bool answered_ = false;
  std::string preface_;  // as far as it has come
  http2::Cutter cutter_;
  std::string payload_;  // of the current frame, where it is short
  size_t taken_ = 0;     // bytes
};

}  // namespace tandem::controller
