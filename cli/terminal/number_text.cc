// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/number_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/quantity_text.h"
#include "proto/time.h"

namespace tandem::cli {

std::string RateText(double per_second) {
  if (!std::isfinite(per_second) || per_second <= 0) {
    return "-";
  }
  if (per_second < 10) {
    return absl::StrFormat("%.2f", per_second);
  }
  if (per_second < 99'950) {
    return plan::GroupedText(std::llround(per_second));
  }
  if (per_second < 999'500) {
    return absl::StrFormat("%.0fk", per_second / 1e3);
  }
  return per_second < 1e9 ? absl::StrFormat("%.2fM", per_second / 1e6)
                          : absl::StrFormat("%.2fG", per_second / 1e9);
}

std::string LossText(double loss) {
  return !std::isfinite(loss)    ? MagnitudeText(loss)
         : std::abs(loss) < 1000 ? absl::StrFormat("%.4f", loss)
                                 : absl::StrFormat("%.3e", loss);
}

std::string MagnitudeText(double value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  const double size = std::abs(value);
  if (size == 0) {
    return "0";
  }
  if (size < 0.001 || size >= 99'950) {
    return absl::StrFormat("%.2e", value);
  }
  // Three significant digits.
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.09995 ? 3 : 4;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string ScientificText(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.2e", value) : MagnitudeText(value);
}

std::string BytesText(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1023.5 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || std::abs(value - std::round(value)) < 0.05) {
    return absl::StrFormat("%.0f %s", value, kUnits[unit]);
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string ClockText(absl::Duration span) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(span + absl::Milliseconds(500)));
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (hours >= 48) {
    return absl::StrFormat("%dd %02dh", hours / 24, hours % 24);
  }
  return hours > 0 ? absl::StrFormat("%d:%02d:%02d", hours, minutes % 60, seconds % 60)
                   : absl::StrFormat("%d:%02d", minutes, seconds % 60);
}

std::string SpanText(absl::Duration span) {
  const double exact = std::max(0.0, absl::ToDoubleSeconds(span));
  if (exact < 9.95) {
    return absl::StrFormat("%.1f s", exact);
  }
  const int64_t seconds = std::llround(exact);
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) {
    return absl::StrFormat("%d s", seconds);
  }
  if (hours == 0) {
    return absl::StrFormat("%d min %d s", minutes, seconds % 60);
  }
  return hours < 48 ? absl::StrFormat("%d h %d min", hours, minutes % 60)
                    : absl::StrFormat("%d d %d h", hours / 24, hours % 24);
}

std::string StepTimeText(double seconds) {
  return seconds < 0.1 ? absl::StrFormat("%s ms", MagnitudeText(seconds * 1e3))
                       : absl::StrFormat("%s s", MagnitudeText(seconds));
}

bool IsSet(const google::protobuf::Timestamp& time) { return time.seconds() != 0 || time.nanos() != 0; }

std::string TimeText(const google::protobuf::Timestamp& time, absl::TimeZone zone) {
  return IsSet(time) ? absl::FormatTime("%Y-%m-%d %H:%M:%S", proto::FromProto(time), zone) : "";
}

std::string AgeText(const google::protobuf::Timestamp& time, absl::Time now) {
  if (!IsSet(time)) {
    return "";
  }
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(now - proto::FromProto(time)));
  if (seconds < 120) {
    return absl::StrFormat("%ds", seconds);
  }
  if (seconds < 7200) {
    return absl::StrFormat("%dm", seconds / 60);
  }
  return seconds < 48 * 3600 ? absl::StrFormat("%dh", seconds / 3600)
                             : absl::StrFormat("%dd", seconds / 86400);
}

}  // namespace tandem::cli
