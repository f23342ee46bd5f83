// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/test_outlines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "tests/schedules/outline_pieces.h"

namespace tandem::schedules {

ValueId AddValue(Outline& outline, const std::string& name, int64_t bytes, int64_t gradient_bytes,
                 ValueKind kind) {
  outline.values.push_back(
      {.name = name, .kind = kind, .bytes = Fixed(bytes), .gradient_bytes = Fixed(gradient_bytes)});
  return static_cast<ValueId>(outline.values.size()) - 1;
}

UnitId AddUnit(Outline& outline, const std::string& name, int layer, const std::vector<std::string>& parts,
               const std::vector<int64_t>& elements) {
  Unit unit{.name = name, .layer = layer, .classes = {{}}};
  int64_t& end = unit.classes[0].elements;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t begin = RoundUp(end, 64);
    unit.parts.push_back({parts[i], begin, begin + elements[i]});
    end = begin + elements[i];
  }
  outline.units.push_back(unit);
  return static_cast<UnitId>(outline.units.size()) - 1;
}

namespace {

template <typename Named>
int Find(const std::vector<Named>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& named) { return named.name == name; });
  TANDEM_CHECK(found != all.end(), absl::StrCat("no ", name));
  return static_cast<int>(found - all.begin());
}

}  // namespace

ValueId FindValue(const Outline& outline, const std::string& name) { return Find(outline.values, name); }
NodeId FindNode(const Outline& outline, const std::string& name) { return Find(outline.nodes, name); }
UnitId FindUnit(const Outline& outline, const std::string& name) { return Find(outline.units, name); }

BuildOptions OptionsFor(const Outline& outline, const std::string& strategy, int num_microbatches,
                        int ranks) {
  BuildOptions options{.num_microbatches = num_microbatches, .num_validation_microbatches = 1};
  options.strategy = StrategyOf(strategy).value();
  options.expert_strategy = options.strategy;
  const bool has_outer = options.strategy.outer.gradients == Placement::kPartial;
  const int outer = has_outer && ranks > 1 ? 2 : 1;
  options.dense = {.inner = ranks / outer, .outer = outer};
  options.expert = {.inner = std::max(1, ranks / outer / 2),
                    .outer = outer,
                    .inner_group = "expt_dp",
                    .gather_group = "expt_dp_ag",
                    .outer_group = "inter_expt_dp"};
  if (has_outer) {
    options.dense.inner_group = "intra_dp_cp";
    options.expert.inner_group = "intra_expt_dp";
  }
  for (const Unit& unit : outline.units) {
    const MeshAxes& axes = unit.group == UnitGroup::kExpert ? options.expert : options.dense;
    const int64_t shards = static_cast<int64_t>(axes.inner) * axes.outer;
    options.units.push_back({.norm_terms_bytes = 16,
                             .update_norms_bytes = 24 * static_cast<int64_t>(unit.parts.size()),
                             .optimizer_scratch_bytes = 512});
    for (const UnitClass& each : unit.classes) {
      const int64_t outer_shard = RoundUp((each.elements + shards - 1) / shards, 64);
      options.units.back().classes.push_back(
          {.shard_elements = outer_shard * axes.outer, .outer_shard_elements = outer_shard});
    }
  }
  options.rings = {.inputs_bytes = 48, .outcome_bytes = 24};
  return options;
}

std::vector<bool> RecomputeLayers(const Outline& outline) {
  std::vector<bool> recompute(outline.values.size(), false);
  for (const Node& node : outline.nodes) {
    const bool ends_layer = node.kind == "finish" || node.kind == "mlp";
    for (const ValueId value : node.forward.writes) {
      recompute[value] = node.layer >= 0 && outline.values[value].kind != ValueKind::kHost &&
                         !(ends_layer && value == node.forward.writes.front());
    }
  }
  return recompute;
}

void UseBf16(Outline& outline) {
  for (Unit& unit : outline.units) {
    for (UnitClass& each : unit.classes) {
      each.precision = {.main = 4, .compute = 2, .transport = 2};
    }
  }
}

void KeepLastPartsInMainType(Outline& outline) {
  for (Unit& unit : outline.units) {
    PartRange& part = unit.parts.back();
    if (unit.parts.size() > 1 && unit.classes.size() == 1) {
      const int main = unit.classes[0].precision.main;
      unit.classes[0].elements = unit.parts[unit.parts.size() - 2].end;
      unit.classes.push_back({.precision = {.main = main, .compute = main, .transport = main},
                              .elements = part.end - part.begin});
      part = {.name = part.name, .end = part.end - part.begin, .of_class = 1};
    }
  }
}

}  // namespace tandem::schedules
