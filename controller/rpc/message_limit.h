// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "controller/rpc/http2_frames.h"

namespace tandem::controller {

// The bytes that gRPC may have to hold of messages that have begun and not ended, over many connections. Not
// thread-safe.
struct UnfinishedMessages {
  const int64_t most_bytes;
  int64_t bytes = 0;  // as long as they say that they will be
};

// Refuses gRPC messages that are too long, in the bytes of one HTTP/2 connection that passes through. gRPC's
// own limit is applied to messages that have arrived whole: 1.51 buffers 512 MB before it says no. A message
// begins with its length, so here it is refused when its first five bytes have passed: the server gets
// that the client has cancelled the call, the client that the server has ended it with RESOURCE_EXHAUSTED and
// both sizes. What the client still sends of it is passed on, for flow control; the server drops it.
//
// Refused in the same way is a message that is not small where those that have not ended are too long
// together: a thousand clients that each stop in the middle of a message must not fill the memory either.
//
// Frames as in RFC 9113, messages as in gRPC's PROTOCOL-HTTP2. Plaintext only. What is not HTTP/2 passes as
// it is. Pure: no clock, no lock, no descriptor. Not thread-safe.
class MessageLimit {
 public:
  // `unfinished`, which other connections share, outlives it.
  MessageLimit(uint32_t most_bytes, UnfinishedMessages& unfinished)
      : most_bytes_(most_bytes), unfinished_(unfinished) {}

  // Messages up to here are never refused: beats, and what else keeps a worker's session alive. gRPC's flow
  // control bounds what it holds of them.
  static constexpr uint32_t kSmallBytes = 16 << 10;

  // What leaves towards each side.
  struct Output {
    std::string to_server;
    std::string to_client;
  };

  // Takes bytes in whatever pieces they come. False where the client has more calls open than any client of
  // ours: the connection is to be closed.
  bool FromClient(std::string_view bytes, Output& out);
  void FromServer(std::string_view bytes, Output& out);

  // Messages that were refused.
  int64_t num_refused() const { return num_refused_; }

 private:
  // What a message counts in UnfinishedMessages, until it ends.
  class Share {
   public:
    Share() = default;
    Share(UnfinishedMessages& of, int64_t bytes) : of_(&of), bytes_(bytes) { of.bytes += bytes; }
    ~Share() {
      if (of_ != nullptr) {
        of_->bytes -= bytes_;
      }
    }
    Share(Share&& other) noexcept : of_(std::exchange(other.of_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

   private:
    UnfinishedMessages* of_ = nullptr;
    int64_t bytes_ = 0;
  };
  // One that the client has opened, and that neither side has ended: on any other the server drops messages.
  struct Stream {
    std::string prefix;     // of the message that is passing: flag and length, as far as they have come
    uint32_t left = 0;      // of its body
    Share share;            // while some of it is left
    bool answered = false;  // the server's headers have passed
  };
  // The error for the client.
  struct Refusal {
    std::string why;
    bool answered = false;
  };

  // Why a message of that length is refused when it begins; empty: it may pass.
  std::string WhyRefused(uint32_t length) const;
  void Scan(std::string_view payload, Stream& stream);
  void Refuse(uint32_t id, Output& out);
  // Sends the client its refusals, unless the server is in the middle of a frame or of a header block.
  void Tell(Output& out);

  const uint32_t most_bytes_;
  UnfinishedMessages& unfinished_;
  bool plain_ = false;   // not HTTP/2: nothing is looked at
  std::string preface_;  // of the client, as far as it has come
  http2::Cutter client_;
  http2::Cutter server_;
  bool headers_open_ = false;           // the server's header block goes on in the next frame
  std::map<uint32_t, Stream> streams_;  // by id
  std::map<uint32_t, Refusal> refusals_;
  std::string refused_;  // why the message that began in the current frame may not pass; empty: none did
  int64_t num_refused_ = 0;
};

}  // namespace tandem::controller
