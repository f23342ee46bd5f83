#include "controller/message_limit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kHeaderBytes = 9;
constexpr size_t kPrefixBytes = 5;
constexpr size_t kMostUnfinished = 65536;

enum FrameType : uint8_t { kData = 0, kHeaders = 1, kResetStream = 3, kContinuation = 9 };
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint32_t kNoError = 0;
constexpr uint32_t kCancel = 8;

uint32_t BigEndian(std::string_view bytes) {
  uint32_t out = 0;
  for (const char c : bytes) {
    out = out << 8 | static_cast<uint8_t>(c);
  }
  return out;
}

void AppendBigEndian(uint32_t value, int bytes, std::string& out) {
  for (int i = bytes - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

void AppendFrame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload, std::string& out) {
  AppendBigEndian(static_cast<uint32_t>(payload.size()), 3, out);
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  AppendBigEndian(stream, 4, out);
  out.append(payload);
}

void AppendReset(uint32_t stream, uint32_t error, std::string& out) {
  std::string payload;
  AppendBigEndian(error, 4, payload);
  AppendFrame(kResetStream, 0, stream, payload, out);
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

}  // namespace

bool MessageLimit::Cutter::TakeHeader(std::string_view& bytes, std::string& passed) {
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

std::string_view MessageLimit::Cutter::TakePayload(std::string_view& bytes, std::string& passed) {
  const std::string_view taken = bytes.substr(0, frame.length);
  passed.append(taken);
  bytes.remove_prefix(taken.size());
  frame.length -= static_cast<uint32_t>(taken.size());
  in_payload = frame.length > 0;
  return taken;
}

void MessageLimit::Scan(std::string_view payload, Message& message) {
  while (!payload.empty() && !message.refused) {
    if (message.left > 0) {
      const size_t taken = std::min<size_t>(message.left, payload.size());
      message.left -= static_cast<uint32_t>(taken);
      payload.remove_prefix(taken);
      continue;
    }
    const size_t taken = std::min(kPrefixBytes - message.prefix.size(), payload.size());
    message.prefix.append(payload.substr(0, taken));
    payload.remove_prefix(taken);
    if (message.prefix.size() < kPrefixBytes) {
      return;
    }
    message.left = BigEndian(std::string_view(message.prefix).substr(1));
    message.prefix.clear();
    if (message.left > most_bytes_) {
      message.refused = true;
      too_long_ = message.left;
    }
  }
}

bool MessageLimit::BetweenFramesToClient() const {
  return server_.header.empty() && !server_.in_payload && !headers_open_;
}

void MessageLimit::Refuse(uint32_t stream, uint32_t length, Output& out) {
  ++num_refused_;
  AppendReset(stream, kCancel, out.to_server);
  std::string fields;
  if (answered_.erase(stream) == 0) {
    fields.push_back(static_cast<char>(0x88));  // ":status: 200", in the static table
    AppendField("content-type", "application/grpc", fields);
  }
  AppendField("grpc-status", "8", fields);  // RESOURCE_EXHAUSTED
  AppendField("grpc-message",
              absl::StrCat("a message of ", length, " bytes was refused; at most ", most_bytes_,
                           " bytes are taken: make it smaller, or send it in parts"),
              fields);
  AppendFrame(kHeaders, kEndStream | kEndHeaders, stream, fields, refusals_);
  AppendReset(stream, kNoError, refusals_);
  if (BetweenFramesToClient()) {
    out.to_client.append(std::exchange(refusals_, {}));
  }
}

bool MessageLimit::FromClient(std::string_view bytes, Output& out) {
  if (preface_.size() < kPreface.size() && !plain_) {
    const std::string_view taken = bytes.substr(0, kPreface.size() - preface_.size());
    preface_.append(taken);
    out.to_server.append(taken);
    bytes.remove_prefix(taken.size());
    plain_ = kPreface.substr(0, preface_.size()) != preface_;
  }
  while (!bytes.empty() && !plain_) {
    if (!client_.in_payload && !client_.TakeHeader(bytes, out.to_server)) {
      break;
    }
    const Frame& frame = client_.frame;
    const std::string_view payload = client_.TakePayload(bytes, out.to_server);
    if (frame.type == kData) {
      Message& message = messages_[frame.stream];
      Scan(payload, message);
      if (client_.in_payload) {
        continue;
      }
      if (too_long_.has_value()) {
        Refuse(frame.stream, *std::exchange(too_long_, std::nullopt), out);
      }
      const bool between = message.prefix.empty() && message.left == 0;
      if (between || (frame.flags & kEndStream) != 0) {
        messages_.erase(frame.stream);
      }
    } else if (frame.type == kResetStream) {
      messages_.erase(frame.stream);
      answered_.erase(frame.stream);
    }
  }
  out.to_server.append(bytes);
  return messages_.size() <= kMostUnfinished;
}

void MessageLimit::FromServer(std::string_view bytes, Output& out) {
  while (!bytes.empty() && !plain_) {
    if (!server_.in_payload && !server_.TakeHeader(bytes, out.to_client)) {
      return;
    }
    const Frame& frame = server_.frame;
    server_.TakePayload(bytes, out.to_client);
    if (frame.type == kHeaders) {
      answered_.insert(frame.stream);
    }
    if (server_.in_payload) {
      return;
    }
    if (frame.type == kHeaders || frame.type == kContinuation) {
      headers_open_ = (frame.flags & kEndHeaders) == 0;
    }
    const bool ends_stream =
        (frame.type == kHeaders || frame.type == kData) && (frame.flags & kEndStream) != 0;
    if (ends_stream || frame.type == kResetStream) {
      answered_.erase(frame.stream);
    }
    if (BetweenFramesToClient()) {
      out.to_client.append(std::exchange(refusals_, {}));
    }
  }
  out.to_client.append(bytes);
}

}  // namespace tandem::controller
