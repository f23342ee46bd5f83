#include "proto/time.h"

namespace tandem::proto {
namespace {

template <typename Message>
Message Split(absl::Duration duration) {
  Message out;
  absl::Duration rest;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  out.set_nanos(static_cast<int32_t>(rest / absl::Nanoseconds(1)));
  return out;
}

}  // namespace

google::protobuf::Timestamp ToProto(absl::Time time) {
  return Split<google::protobuf::Timestamp>(time - absl::UnixEpoch());
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  return Split<google::protobuf::Duration>(duration);
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace tandem::proto
