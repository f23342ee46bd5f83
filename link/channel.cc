// SPDX-License-Identifier: Apache-2.0
#include "link/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::link {
namespace {

// A frame: the length of the message, 4 bytes little-endian, then the message.
constexpr size_t kHeaderBytes = 4;

enum class Filled { kAll, kNothing, kPart };

// Reads exactly `size` bytes, unless the peer closes first.
absl::StatusOr<Filled> Fill(int fd, char* data, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = recv(fd, data + got, size - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n == 0 || errno == ECONNRESET) {  // reset: the peer died before it read all our bytes
      return got == 0 ? Filled::kNothing : Filled::kPart;
    } else {
      return absl::ErrnoToStatus(errno, "receive from the control socket");
    }
  }
  return Filled::kAll;
}

}  // namespace

Channel::~Channel() { close(fd_); }

absl::Status Channel::Send(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", size, " bytes is larger than the limit of ", kMaxFrameBytes));
  }
  std::string frame(kHeaderBytes, '\0');
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    frame[i] = static_cast<char>((size >> (8 * i)) & 0xff);
  }
  if (!message.AppendToString(&frame)) {
    return absl::InternalError("a message does not serialise");
  }

  const absl::MutexLock lock(&send_mu_);
  size_t put = 0;
  while (put < frame.size()) {
    const ssize_t n = send(fd_, frame.data() + put, frame.size() - put, MSG_NOSIGNAL);
    if (n >= 0) {
      put += static_cast<size_t>(n);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the peer of the control socket is gone");
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, "send to the control socket");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Channel::Receive(google::protobuf::MessageLite& message) {
  char header[kHeaderBytes];
  absl::StatusOr<Filled> filled = Fill(fd_, header, kHeaderBytes);
  TANDEM_RETURN_IF_ERROR(filled.status());
  if (*filled == Filled::kNothing) {
    return false;
  }
  if (*filled == Filled::kPart) {
    return absl::DataLossError("the peer closed within the length of a frame");
  }
  size_t size = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    size |= size_t{static_cast<uint8_t>(header[i])} << (8 * i);
  }
  if (size > kMaxFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("a frame of ", size, " bytes is larger than the limit of ", kMaxFrameBytes));
  }
  std::string body(size, '\0');
  filled = Fill(fd_, body.data(), size);
  TANDEM_RETURN_IF_ERROR(filled.status());
  if (*filled != Filled::kAll) {
    return absl::DataLossError(absl::StrCat("the peer closed within a frame of ", size, " bytes"));
  }
  if (!message.ParseFromString(body)) {
    return absl::DataLossError(absl::StrCat("a frame of ", size, " bytes is not a ", message.GetTypeName()));
  }
  return true;
}

void Channel::Shutdown() { shutdown(fd_, SHUT_RDWR); }

}  // namespace tandem::link
