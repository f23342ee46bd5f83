#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tandem::controller {

// Refuses gRPC messages that are too long, in the bytes of one HTTP/2 connection that passes through. gRPC's
// own limit is applied to messages that have arrived whole: 1.51 buffers 512 MB before it says no. A message
// begins with its length, so here it is refused when its first five bytes have passed: the server is told
// that the client has cancelled the call, the client that the server has ended it with RESOURCE_EXHAUSTED and
// both sizes. What the client still sends of it is passed on, for flow control; the server drops it.
//
// Frames as in RFC 9113, messages as in gRPC's PROTOCOL-HTTP2. Plaintext only. What is not HTTP/2 passes as
// it is. Pure: no clock, no lock, no descriptor. Not thread-safe.
class MessageLimit {
 public:
  explicit MessageLimit(uint32_t most_bytes) : most_bytes_(most_bytes) {}

  // What leaves towards each side.
  struct Output {
    std::string to_server;
    std::string to_client;
  };

  // Takes bytes in whatever pieces they come. False where the client has more messages unfinished, or refused
  // and not ended, than any client of ours: the connection is to be closed.
  bool FromClient(std::string_view bytes, Output& out);
  void FromServer(std::string_view bytes, Output& out);

  // Messages that were refused.
  int64_t num_refused() const { return num_refused_; }

 private:
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
    // Takes from the front of `bytes` what belongs to the current frame; true where a header is complete.
    bool TakeHeader(std::string_view& bytes, std::string& passed);
    std::string_view TakePayload(std::string_view& bytes, std::string& passed);
  };
  // The message that is passing on a stream.
  struct Message {
    std::string prefix;  // flag and length, as far as they have come
    uint32_t left = 0;   // of its body
    bool refused = false;
  };

  void Scan(std::string_view payload, Message& message);
  void Refuse(uint32_t stream, uint32_t length, Output& out);
  bool BetweenFramesToClient() const;

  const uint32_t most_bytes_;
  bool plain_ = false;   // not HTTP/2: nothing is looked at
  std::string preface_;  // of the client, as far as it has come
  Cutter client_;
  Cutter server_;
  bool headers_open_ = false;             // the server's header block goes on in the next frame
  std::map<uint32_t, Message> messages_;  // by stream: unfinished or refused ones
  std::set<uint32_t> answered_;           // streams on which the server's headers have passed
  std::optional<uint32_t> too_long_;      // the length that was found in the current frame
  std::string refusals_;                  // for the client, where the server is in the middle of a frame
  int64_t num_refused_ = 0;
};

}  // namespace tandem::controller
