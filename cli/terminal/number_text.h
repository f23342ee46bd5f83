// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace tandem::cli {

// Numbers as a person reads them. Data output (-o json) prints full precision instead.

std::string RateText(double per_second);     // "0.82", "5,243", "52.4k", "1.31M"; "-" for nothing measured
std::string LossText(double loss);           // "2.5123", "nan"
std::string MagnitudeText(double value);     // "0.842", "12.3", "4.1e-05"
std::string ScientificText(double value);    // "7.61e-04"
std::string BytesText(int64_t bytes);        // "64 MiB"
std::string ClockText(absl::Duration span);  // "0:41", "1:02:03", "2d 03h"
std::string SpanText(absl::Duration span);   // "0.8 s", "41 s", "2 min 5 s", "1 h 2 min", "2 d 3 h"
std::string StepTimeText(double seconds);    // "0.62 s", "8.1 ms"

bool IsSet(const google::protobuf::Timestamp& time);

// "2024-05-01 12:00:01" in the given zone; empty if unset.
std::string TimeText(const google::protobuf::Timestamp& time, absl::TimeZone zone);

// "41s", "3m", "2h", "5d": how long ago.
std::string AgeText(const google::protobuf::Timestamp& time, absl::Time now);

}  // namespace tandem::cli
