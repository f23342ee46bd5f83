// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/message_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

using http2::BigEndian;
using http2::Frame;

constexpr size_t kPrefixBytes = 5;
constexpr size_t kMostOpen = 65536;
constexpr int kResourceExhausted = 8;

}  // namespace

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
  http2::AppendReset(id, http2::kCancel, out.to_server);
  refusals_[id] = {.why = std::exchange(refused_, ""), .answered = streams_[id].answered};
  streams_.erase(id);
  Tell(out);
}

void MessageLimit::Tell(Output& out) {
  if (!server_.header.empty() || server_.in_payload || headers_open_) {
    return;
  }
  for (const auto& [id, refusal] : std::exchange(refusals_, {})) {
    http2::AppendEnd(id, refusal.answered, kResourceExhausted, refusal.why, out.to_client);
  }
}

bool MessageLimit::FromClient(std::string_view bytes, Output& out) {
  if (preface_.size() < http2::kPreface.size() && !plain_) {
    const std::string_view taken = bytes.substr(0, http2::kPreface.size() - preface_.size());
    preface_.append(taken);
    out.to_server.append(taken);
    bytes.remove_prefix(taken.size());
    plain_ = http2::kPreface.substr(0, preface_.size()) != preface_;
  }
  while (!bytes.empty() && !plain_) {
    if (!client_.in_payload && !client_.TakeHeader(bytes, out.to_server)) {
      break;
    }
    const Frame& frame = client_.frame;
    const std::string_view payload = client_.TakePayload(bytes, out.to_server);
    const auto stream = streams_.find(frame.stream);
    if (frame.type == http2::kData && stream != streams_.end()) {
      Scan(payload, stream->second);
    }
    if (client_.in_payload) {
      continue;
    }
    if (!refused_.empty()) {
      Refuse(frame.stream, out);
    } else if (frame.type == http2::kHeaders && (frame.flags & http2::kEndStream) == 0) {
      streams_.try_emplace(frame.stream);
    } else if (frame.type == http2::kResetStream) {
      streams_.erase(frame.stream);
      refusals_.erase(frame.stream);
    } else if ((frame.type == http2::kData || frame.type == http2::kHeaders) &&
               (frame.flags & http2::kEndStream) != 0) {
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
    const bool carries = frame.type == http2::kHeaders || frame.type == http2::kData;
    if (frame.type == http2::kResetStream || (carries && (frame.flags & http2::kEndStream) != 0)) {
      streams_.erase(frame.stream);
      refusals_.erase(frame.stream);  // it has its answer
    } else if (frame.type == http2::kHeaders) {
      if (const auto stream = streams_.find(frame.stream); stream != streams_.end()) {
        stream->second.answered = true;
      }
      if (const auto refusal = refusals_.find(frame.stream); refusal != refusals_.end()) {
        refusal->second.answered = true;
      }
    }
    if (frame.type == http2::kHeaders || frame.type == http2::kContinuation) {
      headers_open_ = (frame.flags & http2::kEndHeaders) == 0;
    }
    Tell(out);
  }
  out.to_client.append(bytes);
}

}  // namespace tandem::controller
