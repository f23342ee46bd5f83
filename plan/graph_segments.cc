// SPDX-License-Identifier: Apache-2.0
#include "plan/graph_segments.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "schedules/passes/segments.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

// A word of a scope and the kinds of nodes that it names.
struct ScopeWord {
  absl::string_view word;
  std::vector<absl::string_view> kinds;
};

const std::vector<ScopeWord>& ScopeWords() {
  static const auto& words = *new std::vector<ScopeWord>{{"attention", {"attention", "latent_attention"}},
                                                         {"router", {"route"}},
                                                         {"preprocess", {"permute"}},
                                                         {"mlp", {"mlp"}}};
  return words;
}

// Whether a word is the name of a node's kind, or stands for it.
bool Names(const ScopeWord& word, const schedules::Node& node) {
  return std::find(word.kinds.begin(), word.kinds.end(), node.kind) != word.kinds.end();
}

absl::StatusOr<std::vector<bool>> ScopeOf(const schedules::Outline& outline, absl::string_view scope) {
  std::vector<bool> in_scope(outline.nodes.size(), false);
  for (const absl::string_view text : absl::StrSplit(scope, ',')) {
    const auto word = std::find_if(ScopeWords().begin(), ScopeWords().end(),
                                   [&](const ScopeWord& known) { return known.word == text; });
    if (word == ScopeWords().end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", text, "\" is not a part of a layer; allowed: ",
          absl::StrJoin(ScopeWords(), ", ",
                        [](std::string* out, const ScopeWord& known) { absl::StrAppend(out, known.word); }),
          ", with commas between them"));
    }
    bool any = false;
    for (size_t n = 0; n < outline.nodes.size(); ++n) {
      if (Names(*word, outline.nodes[n])) {
        in_scope[n] = any = true;
      }
    }
    if (!any) {
      return absl::InvalidArgumentError(absl::StrCat("this model has no ", text, "; leave the word out"));
    }
  }
  return in_scope;
}

std::string PassesOf(const schedules::Outline& outline, const schedules::Program& program,
                     const schedules::Segment& segment) {
  return absl::StrJoin(segment.instructions, ", ", [&](std::string* out, int i) {
    const schedules::Instruction& in = program.instructions[i];
    absl::StrAppend(out, schedules::ToText(in.opcode), " ", outline.nodes[in.target].kind);
  });
}

}  // namespace

absl::StatusOr<GraphSegments> GraphSegmentsOf(const JobPlan& plan, absl::string_view scope) {
  const absl::StatusOr<std::vector<bool>> in_scope = ScopeOf(plan.outline, scope);
  if (!in_scope.ok()) {
    return in_scope.status();
  }
  const schedules::Program& program = plan.stage.train;
  GraphSegments result;
  std::vector<std::vector<schedules::Segment>> by_row;
  std::map<std::string, size_t> rows;
  for (schedules::Segment& segment : SegmentsOf(program, *in_scope)) {
    const std::string passes = PassesOf(plan.outline, program, segment);
    const auto [row, is_new] = rows.try_emplace(passes, by_row.size());
    if (is_new) {
      result.rows.push_back({.passes = passes});
      by_row.emplace_back();
    }
    result.passes_in_graphs += static_cast<int>(segment.instructions.size());
    result.ring_operands += segment.num_ring_operands;
    by_row[row->second].push_back(std::move(segment));
  }
  for (size_t r = 0; r < by_row.size(); ++r) {
    result.rows[r].segments = static_cast<int>(by_row[r].size());
    result.rows[r].graphs = CountGraphs(program, by_row[r]);
  }
  result.passes =
      static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                     [](const schedules::Instruction& in) { return IsNodePass(in.opcode); }));
  return result;
}

nlohmann::json GraphSegmentsToJson(const GraphSegments& segments) {
  nlohmann::json rows = nlohmann::json::array();
  for (const GraphSegments::Row& row : segments.rows) {
    rows.push_back({{"passes", row.passes}, {"segments", row.segments}, {"graphs", row.graphs}});
  }
  return {{"rows", rows},
          {"passes_in_graphs", segments.passes_in_graphs},
          {"passes", segments.passes},
          {"ring_operands", segments.ring_operands}};
}

}  // namespace tandem::plan
