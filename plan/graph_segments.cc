// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_segments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "plan/build_stage.h"
#include "plan/memory_plan.h"
#include "schedules/passes/segments.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

// A kind of node that graphs may replay.
struct ReplayedKind {
  absl::string_view kind;
  absl::string_view word;  // of a scope, which names it
  // Kernels that one pass launches on a GPU: the mean of forward and the backward's two halves, counted in
  // the source. A profiler counted 49 in five passes of an attention and its router, which have 46 here.
  int launches = 0;
};

constexpr std::array<ReplayedKind, 7> kReplayedKinds = {{{"attention", "attention", 6},
                                                         {"latent_attention", "attention", 12},
                                                         {"route", "router", 14},
                                                         {"permute", "preprocess", 4},
                                                         {"mlp", "mlp", 4},
                                                         {"mamba", "mamba", 11},
                                                         {"gated_delta", "mamba", 19}}};

const ReplayedKind* FindKind(const schedules::Node& node) {
  const auto* found = std::find_if(kReplayedKinds.begin(), kReplayedKinds.end(),
                                   [&](const ReplayedKind& known) { return known.kind == node.kind; });
  return found == kReplayedKinds.end() ? nullptr : found;
}

bool Names(absl::string_view word, const schedules::Node& node) {
  const ReplayedKind* kind = FindKind(node);
  return kind != nullptr && kind->word == word;
}

// "forward attention, forward mlp"; of several layers "24 x (forward attention, forward mlp)".
std::string PassesOf(const schedules::Outline& outline, const schedules::Program& program, int begin,
                     int end) {
  std::vector<std::string> passes;
  for (int i = begin; i < end; ++i) {
    const schedules::Instruction& in = program.instructions[i];
    passes.push_back(absl::StrCat(schedules::ToText(in.opcode), " ", outline.nodes[in.target].kind));
  }
  const size_t count = passes.size();
  size_t repeated = 1;
  while (count % repeated != 0 ||
         !std::equal(passes.begin() + static_cast<std::ptrdiff_t>(repeated), passes.end(), passes.begin())) {
    ++repeated;
  }
  passes.resize(repeated);
  const std::string text = absl::StrJoin(passes, ", ");
  return count == repeated ? text : absl::StrCat(count / repeated, " x (", text, ")");
}

}  // namespace

std::vector<bool> ReplayedNodes(const schedules::Outline& outline, const std::vector<std::string>& words) {
  if (words.empty()) {
    return {};
  }
  std::vector<bool> replayed(outline.nodes.size(), false);
  for (const std::string& word : words) {
    bool any = false;
    for (size_t n = 0; n < outline.nodes.size(); ++n) {
      const bool named = Names(word, outline.nodes[n]);
      replayed[n] = replayed[n] || named;
      any |= named;
    }
    if (!any) {
      throw std::logic_error(
          absl::StrCat("graphs.scope: no node for ", word, "; Validate refuses such a spec"));
    }
  }
  return replayed;
}

GraphSegments GraphSegmentsOf(const JobPlan& plan) {
  const schedules::Program& program = plan.stage.train;
  GraphSegments result{.graphs = schedules::CountGraphs(program),
                       .period = schedules::ShareAddresses(program).period};
  std::map<std::string, size_t> rows;
  for (int i = 0, end = 0; i < static_cast<int>(program.instructions.size()); i = end) {
    end = schedules::SegmentEnd(program, i);
    const schedules::Instruction& in = program.instructions[i];
    result.copies += in.opcode == schedules::Opcode::kCopy;
    result.passes += IsNodePass(in.opcode) ? end - i : 0;
    if (in.segment < 0) {
      continue;
    }
    const std::string passes = PassesOf(plan.outline, program, i, end);
    const auto [row, is_new] = rows.try_emplace(passes, result.rows.size());
    if (is_new) {
      result.rows.push_back({.passes = passes});
    }
    ++result.rows[row->second].segments;
    result.passes_in_graphs += end - i;
    for (int pass = i; pass < end; ++pass) {
      result.launches_in_graphs += FindKind(plan.outline.nodes[program.instructions[pass].target])->launches;
    }
  }
  JobPlan eager = plan;
  eager.train.replayed.clear();
  BuildPrograms(eager);
  result.more_arena_bytes = plan.stage.arena_bytes - eager.stage.arena_bytes;
  return result;
}

GraphCosts GraphCostsOf(const JobPlan& plan, const GraphSegments& segments,
                        const schedules::DeviceProfile& profile) {
  const auto issue_ns = [&](int count, double seconds) {
    return static_cast<int64_t>(count * seconds * 1e9);
  };
  return {
      .passes_issue_ns = issue_ns(segments.launches_in_graphs, profile.launch_issue_seconds),
      .graphs_issue_ns = issue_ns(schedules::CountSegments(plan.stage.train), profile.graph_issue_seconds),
      .device_bytes = GraphBytes(plan, profile)};
}

nlohmann::json GraphSegmentsToJson(const GraphSegments& segments, const GraphCosts& costs) {
  const auto known = [](int64_t number) { return number > 0 ? nlohmann::json(number) : nlohmann::json(); };
  nlohmann::json rows = nlohmann::json::array();
  for (const GraphSegments::Row& row : segments.rows) {
    rows.push_back({{"passes", row.passes}, {"segments", row.segments}});
  }
  return {{"rows", rows},
          {"graphs", segments.graphs},
          {"period", segments.period},
          {"passes_in_graphs", segments.passes_in_graphs},
          {"launches_in_graphs", segments.launches_in_graphs},
          {"passes", segments.passes},
          {"copies", segments.copies},
          {"more_arena_bytes", segments.more_arena_bytes},
          {"passes_issue_ns", known(costs.passes_issue_ns)},
          {"graphs_issue_ns", known(costs.graphs_issue_ns)},
          {"device_bytes", known(costs.device_bytes)}};
}

}  // namespace tandem::plan
