#include "controller/rpc/message_limit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kHeaderBytes = 9;
constexpr size_t kPrefixBytes = 5;
constexpr size_t kMostOpen = 65536;

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

std::string MessageLimit::WhyRefused(uint32_t length) const {
  if (length > most_bytes_) {
    return absl::StrCat("a message of ", length, " bytes was refused; at most ", most_bytes_,
                        " bytes are taken: make it smaller, or send it in parts");
  }
  if (length > kSmallBytes && unfinished_.bytes + length > unfinished_.most_bytes) {
    return absl::StrCat("a message of ", length,
                        " bytes was refused, because others that have not ended have ", unfinished_.bytes,
                        " bytes, and at most ", unfinished_.most_bytes,
                        " are held of all: send it again later");
  }
  return "";
}

void MessageLimit::Scan(std::string_view payload, Stream& stream) {
  while (!payload.empty() && refused_.empty()) {
    if (stream.left > 0) {
      const size_t taken = std::min<size_t>(stream.left, payload.size());
      stream.left -= static_cast<uint32_t>(taken);
      if (stream.left == 0) {
        stream.share = Share();
      }
      payload.remove_prefix(taken);
      continue;
    }
    const size_t taken = std::min(kPrefixBytes - stream.prefix.size(), payload.size());
    stream.prefix.append(payload.substr(0, taken));
    payload.remove_prefix(taken);
    if (stream.prefix.size() < kPrefixBytes) {
      return;
    }
    stream.left = BigEndian(std::string_view(stream.prefix).substr(1));
    stream.prefix.clear();
    refused_ = WhyRefused(stream.left);
    if (refused_.empty() && stream.left > kSmallBytes) {
      stream.share = Share(unfinished_, stream.left);
    }
  }
}

void MessageLimit::Refuse(uint32_t id, Output& out) {
  ++num_refused_;
  AppendReset(id, kCancel, out.to_server);
  refusals_[id] = {.why = std::exchange(refused_, ""), .answered = streams_[id].answered};
  streams_.erase(id);
  Tell(out);
}

void MessageLimit::Tell(Output& out) {
  if (!server_.header.empty() || server_.in_payload || headers_open_) {
    return;
  }
  for (const auto& [id, refusal] : std::exchange(refusals_, {})) {
    std::string fields;
    if (!refusal.answered) {
      fields.push_back(static_cast<char>(0x88));  // ":status: 200", in the static table
      AppendField("content-type", "application/grpc", fields);
    }
    AppendField("grpc-status", "8", fields);  // RESOURCE_EXHAUSTED
    AppendField("grpc-message", refusal.why, fields);
    AppendFrame(kHeaders, kEndStream | kEndHeaders, id, fields, out.to_client);
    AppendReset(id, kNoError, out.to_client);
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
    const auto stream = streams_.find(frame.stream);
    if (frame.type == kData && stream != streams_.end()) {
      Scan(payload, stream->second);
    }
    if (client_.in_payload) {
      continue;
    }
    if (!refused_.empty()) {
      Refuse(frame.stream, out);
    } else if (frame.type == kHeaders && (frame.flags & kEndStream) == 0) {
      streams_.try_emplace(frame.stream);
    } else if (frame.type == kResetStream) {
      streams_.erase(frame.stream);
      refusals_.erase(frame.stream);
    } else if ((frame.type == kData || frame.type == kHeaders) && (frame.flags & kEndStream) != 0) {
      streams_.erase(frame.stream);
    }
  }
  out.to_server.append(bytes);
  return streams_.size() <= kMostOpen;
}

void MessageLimit::FromServer(std::string_view bytes, Output& out) {
  while (!bytes.empty() && !plain_) {
    if (!server_.in_payload && !server_.TakeHeader(bytes, out.to_client)) {
      return;
    }
    const Frame& frame = server_.frame;
    server_.TakePayload(bytes, out.to_client);
    if (server_.in_payload) {
      return;
    }
    const bool carries = frame.type == kHeaders || frame.type == kData;
    if (frame.type == kResetStream || (carries && (frame.flags & kEndStream) != 0)) {
      streams_.erase(frame.stream);
      refusals_.erase(frame.stream);  // it has its answer
    } else if (frame.type == kHeaders) {
      if (const auto stream = streams_.find(frame.stream); stream != streams_.end()) {
        stream->second.answered = true;
      }
      if (const auto refusal = refusals_.find(frame.stream); refusal != refusals_.end()) {
        refusal->second.answered = true;
      }
    }
    if (frame.type == kHeaders || frame.type == kContinuation) {
      headers_open_ = (frame.flags & kEndHeaders) == 0;
    }
    Tell(out);
  }
  out.to_client.append(bytes);
}

}  // namespace tandem::controller
