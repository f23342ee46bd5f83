// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace tandem::parallel {

constexpr int kMostCtas = 64;  // of a communicator: NCCL's own limit

// What the communicators of a process group ask of NCCL. Where nothing is said of thread blocks (CTAs) or
// their clusters, copy engines move what they can and the multiprocessors are left to compute; else thread
// blocks do.
struct GroupOptions {
  bool high_priority = false;  // of the streams that its collectives run on
  std::optional<int> cga_cluster_size;
  std::optional<int> min_ctas;
  std::optional<int> max_ctas;
  std::string net_name;  // "IB" or "Socket"; empty: unset
  bool operator==(const GroupOptions&) const = default;
};

// The most thread blocks that a collective takes at once; 0: not said.
int MostCtas(const GroupOptions& options);

// Collectives of all communicators of a GPU may run at once. Thread blocks (CTAs) that do not fit beside each
// other can wait for each other forever, so each communicator has a bound, and the sum of the bounds leaves
// these multiprocessors to compute.
inline constexpr int kSpareMultiprocessors = 8;
inline constexpr int kMultiprocessors =
    132;  // of an H100 or H200; ranks count their own GPU's when they start

// The most thread blocks that a collective of a communicator takes: what the job says for its group, else by
// its purpose. Also where copy engines move its data, since kernels do where NCCL refuses to register a
// window.
int BoundOfCtas(const GroupOptions& options, const std::string& purpose);

// "high priority, 4 to 16 CTAs, clusters of 2, over IB"; empty where nothing is set.
std::string ToText(const GroupOptions& options);

}  // namespace tandem::parallel
