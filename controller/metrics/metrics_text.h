// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <prometheus/collectable.h>

#include <string>

namespace tandem::controller {

// What is collected now, in Prometheus' text format, and its type.
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsText(const prometheus::Collectable& metrics);

}  // namespace tandem::controller
