// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace tandem::proto {

// Convert to and from the times and durations of messages, to the nanosecond.
google::protobuf::Timestamp ToProto(absl::Time time);
google::protobuf::Duration ToProto(absl::Duration duration);

// An unset time is read as the Unix epoch, an unset duration as zero.
absl::Time FromProto(const google::protobuf::Timestamp& time);
absl::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace tandem::proto
