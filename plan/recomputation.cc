// SPDX-License-Identifier: Apache-2.0
#include "plan/recomputation.h"

#include <algorithm>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/build_stage.h"
#include "plan/prediction.h"
#include "schedules/simulate/cost.h"

namespace tandem::plan {
namespace {

using schedules::Node;
using schedules::NodeId;
using schedules::Outline;
using schedules::ValueId;

constexpr char kWholeLayers[] = "layer";

// "layers.3.mlp" → "mlp"
std::string KindOf(const Node& node) { return node.name.substr(node.name.rfind('.') + 1); }

// Finds the values that must be kept because a reader is not recomputed together with their producer: another
// node, or a node of another layer if whole layers are recomputed, or another stage.
class OutsideReaders {
 public:
  OutsideReaders(const Outline& outline, bool whole_layers)
      : producers_(outline.values.size(), -1), read_(outline.values.size(), false) {
    for (NodeId id = 0; id < static_cast<int>(outline.nodes.size()); ++id) {
      for (const ValueId value : outline.nodes[id].forward.writes) {
        producers_[value] = id;
      }
    }
    for (NodeId id = 0; id < static_cast<int>(outline.nodes.size()); ++id) {
      const Node& node = outline.nodes[id];
      for (const schedules::Access* access : {&node.forward, &node.backward_input, &node.backward_weight}) {
        for (const ValueId value : access->reads) {
          const NodeId producer = producers_[value];
          read_[value] =
              read_[value] || (producer >= 0 &&
                               (whole_layers ? outline.nodes[producer].layer != node.layer : producer != id));
        }
      }
    }
    for (const schedules::Boundary& boundary : outline.sent) {
      read_[boundary.value] = true;
    }
  }

  bool Has(ValueId value) const { return read_[value]; }

 private:
  std::vector<NodeId> producers_;
  std::vector<bool> read_;
};

bool Contains(const std::vector<ValueId>& values, ValueId value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

double FlopsOfStep(const JobPlan& plan) {
  const schedules::Workload workload = WorkloadOf(plan);
  double flops = 0;
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    flops += schedules::WorkOf(plan.outline, plan.stage.train, instruction, workload).flops;
  }
  return flops;
}

}  // namespace

std::vector<bool> RecomputedValues(const Outline& outline, const std::vector<std::string>& words) {
  if (words.empty()) {
    return {};
  }
  const bool whole_layers = words.front() == kWholeLayers;
  const OutsideReaders outside(outline, whole_layers);
  std::vector<bool> recomputed(outline.values.size(), false);
  std::vector<std::string> unknown = words;
  for (const Node& node : outline.nodes) {
    const std::string word = whole_layers ? kWholeLayers : KindOf(node);
    if (node.layer < 0 || !node.recomputes || std::find(words.begin(), words.end(), word) == words.end()) {
      continue;
    }
    std::erase(unknown, word);
    for (const ValueId value : node.forward.writes) {
      recomputed[value] = !outside.Has(value) && !Contains(outline.losses, value) &&
                          outline.values[value].kind != schedules::ValueKind::kHost;
    }
  }
  if (!unknown.empty()) {
    throw std::logic_error(absl::StrCat("training.recompute: no node for ", absl::StrJoin(unknown, ", "),
                                        "; Validate refuses such a spec"));
  }
  return recomputed;
}

Recomputation RecomputationOf(const JobPlan& plan) {
  JobPlan keeping = plan;
  keeping.train.recompute.clear();
  BuildPrograms(keeping);
  const double flops = FlopsOfStep(keeping);
  return {.flops = FlopsOfStep(plan) - flops,
          .all_flops = flops,
          .saved_bytes = keeping.stage.arena_bytes - plan.stage.arena_bytes};
}

}  // namespace tandem::plan
