// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/call_refuser.h"

namespace tandem::controller {
namespace {

constexpr int kUnauthenticated = 16;
constexpr size_t kMostBytes = 64 << 10;
constexpr size_t kPingBytes = 8;

}  // namespace

bool CallRefuser::FromClient(std::string_view bytes, std::string& to_client) {
  taken_ += bytes.size();
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
  while (!bytes.empty()) {
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
  return taken_ <= kMostBytes;
}

void CallRefuser::TakeFrame(std::string_view payload, std::string& to_client) {
  const http2::Frame& frame = cutter_.frame;
  if (frame.type == http2::kSettings && (frame.flags & http2::kAck) == 0) {
    http2::AppendFrame(http2::kSettings, http2::kAck, 0, "", to_client);
  } else if (frame.type == http2::kPing && (frame.flags & http2::kAck) == 0) {
    http2::AppendFrame(http2::kPing, http2::kAck, 0, payload, to_client);
  } else if ((frame.type == http2::kHeaders || frame.type == http2::kContinuation) &&
             (frame.flags & http2::kEndHeaders) != 0) {
    http2::AppendEnd(frame.stream, /*answered=*/false, kUnauthenticated, why_, to_client);
  }
}

}  // namespace tandem::controller
