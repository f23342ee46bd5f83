#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::controller {

// Refuses gRPC messages that are too long, in the bytes of one HTTP/2 connection that passes through. gRPC's
// own limit is applied to messages that have arrived whole: 1.51 buffers 512 MB before it says no. A message
// begins with its length, so here it is refused when its first five bytes have passed: the server gets
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

  // Takes bytes in whatever pieces they come. False where the client has more calls open than any client of
  // ours: the connection is to be closed.
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
  // One that the client has opened, and that neither side has ended: on any other the server drops messages.
  struct Stream {
    std::string prefix;     // of the message that is passing: flag and length, as far as they have come
    uint32_t left = 0;      // of its body
    bool answered = false;  // the server's headers have passed
  };
  // The error for the client.
  struct Refusal {
    uint32_t length = 0;  // of the message
    bool answered = false;
  };

  void Scan(std::string_view payload, Stream& stream);
  void Refuse(uint32_t id, Output& out);
  // Tells the client of refusals, unless the server is in the middle of a frame or of a header block.
  void Tell(Output& out);

  const uint32_t most_bytes_;
  bool plain_ = false;   // not HTTP/2: nothing is looked at
  std::string preface_;  // of the client, as far as it has come
  Cutter client_;
  Cutter server_;
  bool headers_open_ = false;           // the server's header block goes on in the next frame
  std::map<uint32_t, Stream> streams_;  // by id
  std::map<uint32_t, Refusal> refusals_;
  std::optional<uint32_t> too_long_;  // the length that was found in the current frame
  int64_t num_refused_ = 0;
};

}  // namespace tandem::controller
