// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace tandem::parallel {

constexpr int kMostCtas = 64;  // NCCL's limit for one communicator

// NCCL options of the communicators of a process group. If neither thread blocks (CTAs) nor their clusters
// are set, copy engines move what they can, and the multiprocessors are free to compute; otherwise thread
// blocks move the data.
struct GroupOptions {
  bool high_priority = false;  // the group's collectives run on streams of high priority
  std::optional<int> cga_cluster_size;
  std::optional<int> min_ctas;
  std::optional<int> max_ctas;
  std::string net_name;  // "IB" or "Socket"; empty: unset
  bool operator==(const GroupOptions&) const = default;
};

// The most thread blocks of one collective: max_ctas if it is set, otherwise kMostCtas if min_ctas or
// cga_cluster_size is set, otherwise 0.
int MostCtas(const GroupOptions& options);

// Collectives of all communicators of a GPU may run at once. If the thread blocks of these collectives do not
// all fit on the GPU, the collectives can wait for each other forever. So each communicator has a bound, and
// the sum of the bounds leaves this many multiprocessors free to compute.
inline constexpr int kSpareMultiprocessors = 8;
// Of an H100 or H200; ranks count their own GPU's when they start.
inline constexpr int kMultiprocessors = 132;

// The bound on the thread blocks of one collective of a communicator: MostCtas if it is not 0, otherwise
// a limit by `purpose`. The bound also holds if copy engines move the data, because kernels do so instead if
// NCCL refuses to register a window.
int BoundOfCtas(const GroupOptions& options, const std::string& purpose);

// "high priority, 4 to 16 CTAs, clusters of 2, over IB"; empty if nothing is set.
std::string ToText(const GroupOptions& options);

}  // namespace tandem::parallel
