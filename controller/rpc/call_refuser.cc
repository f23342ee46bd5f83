// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/call_refuser.h"

#include <algorithm>

namespace tandem::controller {
namespace {

// Twice what HTTP/2 lets a client send of its calls before the server makes room. Closed earlier, with bytes
// unread, the connection is reset, and the client may lose the status.
constexpr size_t kMostDropped = 128 << 10;
constexpr size_t kPingBytes = 8;

}  // namespace

bool CallRefuser::FromClient(std::string_view bytes, std::string& to_client) {
  taken_ += bytes.size();
  if (answered_) {
    return taken_ <= kMostDropped;
  }
  const bool too_much = taken_ > kMostAnswers;
  if (too_much) {
    bytes.remove_suffix(std::min(bytes.size(), taken_ - kMostAnswers));
  }
  if (preface_.size() < http2::kPreface.size()) {
    const std::string_view part = bytes.substr(0, http2::kPreface.size() - preface_.size());
    preface_.append(part);
    bytes.remove_prefix(part.size());
    if (http2::kPreface.substr(0, preface_.size()) != preface_) {
      return false;
    }
    if (preface_.size() == http2::kPreface.size()) {
      http2::AppendFrame(http2::kSettings, 0, 0, "", to_client);
    }
  }
  std::string passed;  // nobody gets it
  while (!bytes.empty() && !answered_) {
    if (!cutter_.in_payload && !cutter_.TakeHeader(bytes, passed)) {
      break;
    }
    const std::string_view part = cutter_.TakePayload(bytes, passed);
    if (payload_.size() < kPingBytes) {
      payload_.append(part.substr(0, kPingBytes - payload_.size()));
    }
    if (!cutter_.in_payload) {
      TakeFrame(payload_, to_client);
      payload_.clear();
    }
  }
  return answered_ ? taken_ <= kMostDropped : !too_much;
}

void CallRefuser::TakeFrame(std::string_view payload, std::string& to_client) {
  const http2::Frame& frame = cutter_.frame;
  if (frame.type == http2::kSettings && (frame.flags & http2::kAck) == 0) {
    http2::AppendFrame(http2::kSettings, http2::kAck, 0, "", to_client);
  } else if (frame.type == http2::kPing && (frame.flags & http2::kAck) == 0) {
    http2::AppendFrame(http2::kPing, http2::kAck, 0, payload, to_client);
  } else if ((frame.type == http2::kHeaders || frame.type == http2::kContinuation) &&
             (frame.flags & http2::kEndHeaders) != 0) {
    const absl::string_view text = why_.message();
    http2::AppendEnd(frame.stream, /*answered=*/false, why_.raw_code(), {text.data(), text.size()},
                     to_client);
    http2::AppendGoAway(frame.stream, to_client);
    answered_ = true;
  }
}

}  // namespace tandem::controller
