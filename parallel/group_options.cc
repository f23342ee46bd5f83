// SPDX-License-Identifier: Apache-2.0
#include "parallel/group_options.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::parallel {

int MostCtas(const GroupOptions& options) {
  const bool uses_ctas = options.min_ctas || options.cga_cluster_size;
  return options.max_ctas.value_or(uses_ctas ? kMostCtas : 0);
}

int BoundOfCtas(const GroupOptions& options, const std::string& purpose) {
  if (const int said = MostCtas(options); said > 0) {
    return said;
  }
  constexpr int kRows = 16;  // rows of experts, of which compute waits for more than it overlaps
  constexpr int kLarge = 4;  // gathers and reductions
  constexpr int kLink = 2;   // a receive that waits for its peer spins on them
  constexpr int kNumbers = 1;
  static const auto& bounds = *new std::map<std::string, int>{
      {"dispatch", kRows}, {"combine", kRows},   {"values", kLink},   {"gradients", kLink},
      {"norm", kNumbers},  {"counts", kNumbers}, {"sizes", kNumbers}, {"balance", kNumbers}};
  const auto bound = bounds.find(purpose);
  return bound == bounds.end() ? kLarge : bound->second;
}

std::string ToText(const GroupOptions& options) {
  std::vector<std::string> parts;
  if (options.high_priority) {
    parts.emplace_back("high priority");
  }
  if (options.min_ctas && options.max_ctas) {
    parts.push_back(absl::StrCat(*options.min_ctas, " to ", *options.max_ctas, " CTAs"));
  } else if (options.min_ctas) {
    parts.push_back(absl::StrCat("at least ", *options.min_ctas, " CTAs"));
  } else if (options.max_ctas) {
    parts.push_back(absl::StrCat("at most ", *options.max_ctas, " CTAs"));
  }
  if (options.cga_cluster_size) {
    parts.push_back(absl::StrCat("clusters of ", *options.cga_cluster_size));
  }
  if (!options.net_name.empty()) {
    parts.push_back(absl::StrCat("over ", options.net_name));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace tandem::parallel
