// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/overlap_bound.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace tandem::schedules {
namespace {

// Of the `count` largest.
int64_t Largest(const std::map<int, int64_t>& bytes, size_t count) {
  std::vector<int64_t> sorted;
  for (const auto& [layer, of_layer] : bytes) {
    sorted.push_back(of_layer);
  }
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.resize(std::max(sorted.size(), count));
  // Where there are fewer layers, they are gathered for one microbatch and for the other.
  for (size_t i = bytes.size(); i < sorted.size() && !bytes.empty(); ++i) {
    sorted[i] = sorted[i - bytes.size()];
  }
  return std::accumulate(sorted.begin(), sorted.begin() + static_cast<int64_t>(count), int64_t{0});
}

std::set<ValueId> ReadByBackwards(const Outline& outline) {
  std::set<ValueId> read;
  for (const Node& node : outline.nodes) {
    for (const Access* access : {&node.backward_input, &node.backward_weight}) {
      read.insert(access->reads.begin(), access->reads.end());
    }
  }
  return read;
}

}  // namespace

int64_t OverlapBound(const Outline& outline) {
  const std::set<ValueId> kept = ReadByBackwards(outline);
  std::map<int, int64_t> activations;  // by layer
  std::map<int, int64_t> exchanged;
  int64_t outside = 0;
  for (const Node& node : outline.nodes) {
    for (const ValueId id : node.forward.writes) {
      const Value& value = outline.values[id];
      if (value.kind != ValueKind::kHost && kept.contains(id)) {
        (node.layer < 0 ? outside : activations[node.layer]) += value.bytes.bound;
      }
      if (value.kind == ValueKind::kAllToAll) {
        exchanged[node.layer] += value.bytes.bound + value.gradient_bytes.bound;
      }
    }
  }
  std::vector<int64_t> up_to;  // layer, itself included
  for (const auto& [layer, bytes] : activations) {
    up_to.push_back((up_to.empty() ? 0 : up_to.back()) + bytes);
  }
  int64_t most = 0;
  for (size_t p = 0; p < up_to.size(); ++p) {
    most = std::max(most, up_to[p] + up_to[up_to.size() - 1 - p]);
  }
  std::map<int, int64_t> gathered;
  std::map<int, int64_t> contributions;
  for (const Unit& unit : outline.units) {
    for (const UnitClass& each : unit.classes) {
      gathered[unit.layer] += each.elements * each.precision.compute;
      contributions[unit.layer] += each.elements * each.precision.transport;
    }
  }
  return most + 2 * outside + Largest(gathered, 4) + Largest(contributions, 2) + 2 * Largest(exchanged, 1);
}

}  // namespace tandem::schedules
