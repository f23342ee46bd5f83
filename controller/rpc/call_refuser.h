// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "controller/rpc/http2_frames.h"

namespace tandem::controller {

// The server's side of an HTTP/2 connection whose client is not to be served: every call ends with
// UNAUTHENTICATED and the reason, so that the client's user reads that and not "Socket closed". What the
// client sends is cut into frames and never looked into; gRPC gets none of it. Not thread-safe.
class CallRefuser {
 public:
  explicit CallRefuser(std::string why) : why_(std::move(why)) {}

  // False where the connection is to be closed, after what `to_client` has got: it is not HTTP/2, or has sent
  // more than those who only begin calls do.
  bool FromClient(std::string_view bytes, std::string& to_client);

 private:
  void TakeFrame(std::string_view payload, std::string& to_client);

  const std::string why_;
  std::string preface_;  // as far as it has come
  http2::Cutter cutter_;
  std::string payload_;  // of the current frame, where it is short
  size_t taken_ = 0;     // bytes
};

}  // namespace tandem::controller
