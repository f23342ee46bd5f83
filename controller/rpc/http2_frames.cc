// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/http2_frames.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::controller::http2 {
namespace {

constexpr size_t kHeaderBytes = 9;

void AppendBigEndian(uint32_t value, int bytes, std::string& out) {
  for (int i = bytes - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

// A string of HPACK (RFC 7541, 5.2) without Huffman coding.
void AppendString(std::string_view text, std::string& out) {
  constexpr size_t kMostInPrefix = 127;
  if (text.size() < kMostInPrefix) {
    out.push_back(static_cast<char>(text.size()));
  } else {
    out.push_back(static_cast<char>(kMostInPrefix));
    size_t rest = text.size() - kMostInPrefix;
    for (; rest >= 128; rest /= 128) {
      out.push_back(static_cast<char>(128 + rest % 128));
    }
    out.push_back(static_cast<char>(rest));
  }
  out.append(text);
}

// Without indexing (6.2.2), so that the tables of both sides stay equal.
void AppendField(std::string_view name, std::string_view value, std::string& out) {
  out.push_back(0);
  AppendString(name, out);
  AppendString(value, out);
}

// gRPC's percent-encoding of everything but printable ASCII.
std::string Encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= 0x20 && c < 0x7f && c != '%') {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "%", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    }
  }
  return out;
}

}  // namespace

uint32_t BigEndian(std::string_view bytes) {
  uint32_t out = 0;
  for (const char c : bytes) {
    out = out << 8 | static_cast<uint8_t>(c);
  }
  return out;
}

void AppendFrame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload, std::string& out) {
  AppendBigEndian(static_cast<uint32_t>(payload.size()), 3, out);
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  AppendBigEndian(stream, 4, out);
  out.append(payload);
}

void AppendGoAway(uint32_t last_stream, std::string& out) {
  std::string payload;
  AppendBigEndian(last_stream, 4, payload);
  AppendBigEndian(kNoError, 4, payload);
  AppendFrame(kGoAway, 0, 0, payload, out);
}

void AppendReset(uint32_t stream, uint32_t error, std::string& out) {
  std::string payload;
  AppendBigEndian(error, 4, payload);
  AppendFrame(kResetStream, 0, stream, payload, out);
}

void AppendEnd(uint32_t stream, bool answered, int code, std::string_view why, std::string& out) {
  std::string fields;
  if (!answered) {
    fields.push_back(static_cast<char>(0x88));  // ":status: 200", in the static table
    AppendField("content-type", "application/grpc", fields);
  }
  AppendField("grpc-status", absl::StrCat(code), fields);
  AppendField("grpc-message", Encoded(why), fields);
  AppendFrame(kHeaders, kEndStream | kEndHeaders, stream, fields, out);
  AppendReset(stream, kNoError, out);
}

bool Cutter::TakeHeader(std::string_view& bytes, std::string& passed) {
  const size_t taken = std::min(kHeaderBytes - header.size(), bytes.size());
  header.append(bytes.substr(0, taken));
  passed.append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  if (header.size() < kHeaderBytes) {
    return false;
  }
  const std::string_view fields = header;
  frame = {.length = BigEndian(fields.substr(0, 3)),
           .type = static_cast<uint8_t>(fields[3]),
           .flags = static_cast<uint8_t>(fields[4]),
           .stream = BigEndian(fields.substr(5, 4)) & 0x7fffffff};
  header.clear();
  in_payload = true;
  return true;
}

std::string_view Cutter::TakePayload(std::string_view& bytes, std::string& passed) {
  const std::string_view taken = bytes.substr(0, frame.length);
  passed.append(taken);
  bytes.remove_prefix(taken.size());
  frame.length -= static_cast<uint32_t>(taken.size());
  in_payload = frame.length > 0;
  return taken;
}

}  // namespace tandem::controller::http2
