// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fsdp/unit_mesh.h"
#include "model/unit_parameters.h"
#include "plan/quantity_text.h"
#include "platform/counted_text.h"

namespace tandem::plan {
namespace {

const char* ToText(schedules::Placement placement) {
  static constexpr const char* kTexts[] = {"all", "a shard", "a partial sum"};
  return kTexts[static_cast<int>(placement)];
}

// "of parameters all, of gradients a shard, of the optimizer's state a shard"
std::string ToText(const schedules::AxisPlacement& axis) {
  return absl::StrCat("of parameters ", ToText(axis.parameters), ", of gradients ", ToText(axis.gradients),
                      ", of the optimizer's state ", ToText(axis.optimizer));
}

void AppendPlacement(const std::string& of, const schedules::Strategy& strategy,
                     const schedules::MeshAxes& axes, std::string& text) {
  absl::StrAppend(&text, "Placement of ", of, ": ", strategy.name, "\n");
  AppendRow(text, "each rank has",
            absl::StrCat(ToText(strategy.inner), ", over ", axes.inner_group, " of ", axes.inner, " ranks"));
  if (axes.outer > 1) {
    AppendRow(
        text, "of that",
        absl::StrCat(ToText(strategy.outer), ", over ", axes.outer_group, " of ", axes.outer, " ranks"));
  }
  AppendRow(text, "gathers in", axes.gather_group);
}

void AppendGroups(const JobPlan& plan, std::string& text) {
  text += "Process groups\n";
  for (size_t first = 0; first < plan.groups.size();) {
    size_t end = first;
    while (end < plan.groups.size() && plan.groups[end].name == plan.groups[first].name) {
      ++end;
    }
    const parallel::Group& group = plan.groups[first];
    AppendRow(text, group.name,
              absl::StrCat(
                  platform::CountedText(static_cast<int64_t>(end - first), "group"), " of ",
                  platform::CountedText(static_cast<int64_t>(group.ranks.size()), "rank"),
                  group.clone_of < 0 ? "" : absl::StrCat(", clones of ", plan.groups[group.clone_of].name)));
    first = end;
  }
}

// The bytes of one element of that buffer, and how many times the unit it holds where a rank has all of it.
struct Role {
  schedules::BufferKind kind;
  int schedules::UnitPrecision::*bytes;
  int copies;
  // Only the staging of a reduction that a run has one of: of accumulated gradients, or over the outer axis.
  bool once_a_run = false;
};

constexpr Role kRoles[] = {
    {schedules::BufferKind::kWeights, &schedules::UnitPrecision::main, 1},
    {schedules::BufferKind::kOptimizerState, &schedules::UnitPrecision::main, 2},
    {schedules::BufferKind::kPublished, &schedules::UnitPrecision::compute, 1},
    {schedules::BufferKind::kGradients, &schedules::UnitPrecision::main, 1},
    {schedules::BufferKind::kGathered, &schedules::UnitPrecision::compute, 1},
    {schedules::BufferKind::kOuterGathered, &schedules::UnitPrecision::compute, 1},
    {schedules::BufferKind::kContribution, &schedules::UnitPrecision::transport, 1},
    {schedules::BufferKind::kFullGradient, &schedules::UnitPrecision::main, 1},
    {schedules::BufferKind::kStaging, &schedules::UnitPrecision::transport, 1},
    {schedules::BufferKind::kStaging, &schedules::UnitPrecision::main, 1, /*once_a_run=*/true},
};

// "1/4 of the unit", "all of the unit", "98.2 % of the unit"
std::string PartText(int64_t bytes, int64_t whole) {
  if (bytes == whole) {
    return "all of the unit";
  }
  return whole % bytes == 0 ? absl::StrCat("1/", whole / bytes, " of the unit")
                            : absl::StrCat(ShareText(static_cast<double>(bytes), static_cast<double>(whole)),
                                           " of the unit");
}

// Padded elements of each class of a unit.
std::vector<int64_t> PaddedElements(const JobPlan& plan, size_t unit) {
  std::vector<int64_t> padded;
  for (const fsdp::Layout& layout : plan.layouts[unit]) {
    padded.push_back(fsdp::PaddedElements(layout, MeshOf(plan, unit, /*rank=*/0)));
  }
  return padded;
}

// The first buffer of each role: others of the same are as large.
void AppendBuffers(const JobPlan& plan, int unit, std::string& text) {
  const std::vector<int64_t> padded = PaddedElements(plan, unit);
  const std::vector<schedules::UnitClass>& classes = plan.outline.units[unit].classes;
  for (const Role& role : kRoles) {
    const std::vector<schedules::Buffer>& buffers = plan.stage.train.buffers;
    const auto buffer = std::find_if(buffers.begin(), buffers.end(), [&](const schedules::Buffer& each) {
      const bool staging = role.kind == schedules::BufferKind::kStaging;
      return each.kind == role.kind && each.subject == unit &&
             (!staging || role.once_a_run == (each.microbatch < 0));
    });
    if (buffer != buffers.end()) {
      int64_t whole = 0;
      std::set<int> element_bytes;
      for (size_t c = 0; c < classes.size(); ++c) {
        whole += padded[c] * classes[c].precision.*role.bytes * role.copies;
        element_bytes.insert(classes[c].precision.*role.bytes);
      }
      absl::StrAppendFormat(
          &text, "    %-22s %12s  %s, %s B an element\n",
          absl::StrCat(schedules::ToText(role.kind), role.once_a_run ? ", once a step" : ""),
          SizeText(buffer->bytes.bound), PartText(buffer->bytes.bound, whole),
          absl::StrJoin(element_bytes, " or "));
    }
  }
}

std::string PaddingText(int64_t padding, int64_t elements) {
  return absl::StrCat(
      "padding ", GroupedText(padding), " (",
      absl::StrFormat("%.3g %%", 100.0 * static_cast<double>(padding) / static_cast<double>(elements)), ")");
}

}  // namespace

std::string LayoutText(const JobPlan& plan) {
  std::string text;
  AppendPlacement("dense units", plan.options.strategy, plan.options.dense, text);
  const bool experts =
      std::any_of(plan.outline.units.begin(), plan.outline.units.end(),
                  [](const schedules::Unit& unit) { return unit.group == schedules::UnitGroup::kExpert; });
  if (experts) {
    AppendPlacement("expert units", plan.options.expert_strategy, plan.options.expert, text);
  }
  AppendGroups(plan, text);
  int64_t all = 0;
  int64_t all_padding = 0;
  size_t parameters = 0;
  std::string units;
  for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
    const std::vector<int64_t> padded = PaddedElements(plan, unit);
    const std::vector<model::UnitTypes> types = model::ClassesOf(plan.units[unit], plan.precision).types;
    std::string of_classes;
    for (size_t c = 0; c < types.size(); ++c) {
      const fsdp::Layout& layout = plan.layouts[unit][c];
      const int64_t elements = fsdp::ParameterElements(layout);
      all += elements;
      all_padding += padded[c] - elements;
      parameters += layout.parameters.size();
      const std::string sizes =
          absl::StrCat(GroupedText(elements), " elements, ", PaddingText(padded[c] - elements, elements),
                       ", shards cut at multiples of ", fsdp::kGranule, "\n");
      if (types.size() == 1) {
        absl::StrAppend(&units, "  ", plan.units[unit].name, ": ", sizes);
      } else {
        absl::StrAppend(&of_classes, "    in ", model::ToText(types[c].compute), ": ", sizes);
      }
      for (const fsdp::Parameter& parameter : layout.parameters) {
        absl::StrAppend(&of_classes, "    ", parameter.name, " [", absl::StrJoin(parameter.shape, ", "),
                        "] @", parameter.range.begin, "+", parameter.range.size(), "\n");
      }
    }
    if (types.size() > 1) {
      absl::StrAppend(&units, "  ", plan.units[unit].name, ": parameters of ", types.size(),
                      " types, which follow each other in each buffer\n");
    }
    AppendBuffers(plan, static_cast<int>(unit), units);
    units += of_classes;
  }
  absl::StrAppend(&text, "Units\n  ", plan.layouts.size(), " units, ", parameters, " parameters of ",
                  GroupedText(all), " elements, ", PaddingText(all_padding, all), "\n", units);
  return text;
}

}  // namespace tandem::plan
