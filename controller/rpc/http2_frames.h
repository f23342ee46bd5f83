// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::controller {

// The frames of HTTP/2 (RFC 9113), as far as those need them who look at a connection without speaking it.
namespace http2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kContinuation = 9
};
inline constexpr uint8_t kAck = 0x1;  // of settings and pings
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;
inline constexpr uint32_t kNoError = 0;
inline constexpr uint32_t kCancel = 8;

struct Frame {
  uint32_t length = 0;  // of what is left of its payload
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
};

// Cuts the bytes of one direction into frames.
struct Cutter {
  std::string header;  // as far as it has come
  Frame frame;
  bool in_payload = false;
  // Takes from the front of `bytes` what belongs to the current frame, and appends it to `passed`; true where
  // a header is complete.
  bool TakeHeader(std::string_view& bytes, std::string& passed);
  std::string_view TakePayload(std::string_view& bytes, std::string& passed);
};

uint32_t BigEndian(std::string_view bytes);

void AppendFrame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload, std::string& out);
// The server takes no call after `last_stream`, and has no error to report.
void AppendGoAway(uint32_t last_stream, std::string& out);
void AppendReset(uint32_t stream, uint32_t error, std::string& out);

// The end of a gRPC call, without a message: its status (`code` as in grpc::StatusCode) and why. `answered`:
// headers have gone out for it before.
void AppendEnd(uint32_t stream, bool answered, int code, std::string_view why, std::string& out);

}  // namespace http2

}  // namespace tandem::controller
