// SPDX-License-Identifier: Apache-2.0
#include "parallel/ctas.h"

#include <map>

namespace tandem::parallel {

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

}  // namespace tandem::parallel
