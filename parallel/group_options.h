// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace tandem::parallel {

// What the communicators of a process group ask of NCCL. Unset: NCCL's choice.
struct GroupOptions {
  bool high_priority = false;  // of the streams that its collectives run on
  std::optional<int> cga_cluster_size;
  std::optional<int> min_ctas;
  std::optional<int> max_ctas;
  std::string net_name;  // "IB" or "Socket"; empty: unset
  bool operator==(const GroupOptions&) const = default;
};

// "high priority, 4 to 16 CTAs, clusters of 2, over IB"; empty where nothing is set.
std::string ToText(const GroupOptions& options);

}  // namespace tandem::parallel
