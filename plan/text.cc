// SPDX-License-Identifier: Apache-2.0
#include "plan/text.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "jobspec/model_types.h"
#include "model/decoder_shapes.h"
#include "model/parameter_and_flop_counts.h"
#include "plan/memory_plan.h"
#include "plan/quantity_text.h"
#include "plan/recomputation.h"
#include "platform/counted_text.h"
#include "schedules/program/text.h"

namespace tandem::plan {

std::vector<UnitRow> UnitRows(const JobPlan& plan) {
  std::vector<UnitRow> rows(plan.units.size());
  const std::vector<fsdp::ClassLayouts> whole = WholeLayouts(plan);
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    for (const fsdp::Layout& layout : whole[unit]) {
      rows[unit].parameters += fsdp::ParameterElements(layout);
    }
    for (const fsdp::Layout& layout : plan.layouts[unit]) {
      rows[unit].elements += layout.elements;
      rows[unit].held_elements += fsdp::HeldRange(layout, MeshOf(plan, unit, /*rank=*/0)).size();
    }
  }
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    if (buffer.kind == schedules::BufferKind::kGathered) {
      rows[buffer.subject].gathered_bytes = buffer.bytes.bound;
    }
  }
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.opcode == schedules::Opcode::kUnshard) {
      ++rows[instruction.target].gathers;
    } else if (instruction.opcode == schedules::Opcode::kReduceGradients) {
      ++rows[instruction.target].reductions;
    }
  }
  for (const schedules::Instruction& instruction : plan.stage.validate.instructions) {
    if (instruction.opcode == schedules::Opcode::kUnshard) {  // other targets are no units
      ++rows[instruction.target].validation_gathers;
    }
  }
  return rows;
}

WaitCounts CountWaits(const schedules::Program& program) {
  WaitCounts counts;
  for (const schedules::Instruction& instruction : program.instructions) {
    for (const schedules::Wait& wait : instruction.waits) {
      ++counts.all;
      counts.for_memory += wait.frees > 0;
    }
  }
  return counts;
}

double ValidationFlops(const JobPlan& plan) {
  const auto texts = static_cast<double>(std::max<size_t>(1, plan.train.data.validation.size()));
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) / 3 * texts *
         static_cast<double>(plan.train.validation_batches * plan.batch.sequences *
                             plan.batch.sequence_length);
}

namespace {

// "1.25: 320 tokens of a microbatch, the most probable; padded to 2,560 rows a rank".
std::string CapacityText(const JobPlan& plan) {
  const model::DecoderShapes shapes(plan.model, plan.batch, plan.precision.common.compute, plan.device);
  const ops::RouterCapacity& capacity = shapes.capacity;
  return absl::StrCat(
      capacity.factor, ": ", GroupedText(ops::CapacityOf(shapes.router, capacity, shapes.tokens)),
      " tokens of a microbatch, the ",
      capacity.policy == ops::DropPolicy::kPosition ? "first" : "most probable",
      capacity.pads ? absl::StrCat("; padded to ", GroupedText(shapes.rows), " rows a rank") : std::string());
}

// "1.5 times the expected: 4,096 of at most 16,384 that a rank may be sent of a microbatch".
std::string RoomText(const JobPlan& plan) {
  const model::DecoderShapes shapes(plan.model, plan.batch, plan.precision.common.compute, plan.device);
  return absl::StrCat(plan.model.moe.most_rows, " times the expected: ", GroupedText(shapes.seen),
                      " of at most ", GroupedText(shapes.all_rows()),
                      " that a rank may be sent of a microbatch");
}

// Its own nodes behind each other: "mamba, experts".
std::string NodesOf(const JobPlan& plan, int64_t layer) {
  std::vector<std::string> nodes;
  for (const schedules::Node& node : WholeOutline(plan).nodes) {
    if (node.layer == layer) {
      nodes.push_back(node.kind);
    }
  }
  return absl::StrJoin(nodes, ", ");
}

std::string LettersOf(const std::vector<model::LayerSymbol>& symbols) {
  std::string letters;
  for (const model::LayerSymbol symbol : symbols) {
    letters += static_cast<char>(symbol);
  }
  return letters;
}

// The kinds of layers of a pattern, each with its nodes and the layers that are such.
void AppendPattern(const JobPlan& plan, std::string& text) {
  const std::vector<std::vector<model::LayerSymbol>>& pattern = plan.model.pattern;
  std::map<std::vector<model::LayerSymbol>, std::vector<int64_t>> layers;
  const int64_t num_layers = pattern.empty() ? 0 : plan.model.num_hidden_layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    layers[pattern[layer]].push_back(layer);
  }
  for (const auto& [symbols, with] : layers) {
    const std::string letters = LettersOf(symbols);
    AppendRow(
        text, symbols.size() > 1 ? absl::StrCat("  [", letters, "]") : absl::StrCat("  ", letters),
        absl::StrCat(NodesOf(plan, with.front()), ": layers ", jobspec::WindowLayersText(with, num_layers)));
  }
  if (const model::PredictionDepths& depths = plan.model.depths; depths.number > 0) {
    AppendRow(
        text, absl::StrCat("  /", LettersOf(pattern.back())),
        absl::StrCat(NodesOf(plan, num_layers + depths.number - 1), ": ",
                     depths.number == 1 ? "one depth" : absl::StrCat("each of ", depths.number, " depths"),
                     " of multi-token prediction, of weight ", depths.loss_weight,
                     depths.detached ? ", detached" : ""));
  }
  if (const model::MambaMixer& mamba = plan.model.mamba; mamba.heads > 0) {
    AppendRow(text, "mixers",
              absl::StrCat(mamba.heads, " heads of ", mamba.head_dim, " (", mamba.groups,
                           " groups), states of ", mamba.state, ", kept every ", mamba.chunk, " tokens"));
  }
  if (const model::GatedDeltaNet& delta = plan.model.delta; delta.value_heads > 0) {
    AppendRow(
        text, "delta nets",
        absl::StrCat(delta.value_heads, " heads of ", delta.value_dim, " (", delta.key_heads, " of ",
                     delta.key_dim, " for queries and keys), states kept every ", delta.chunk, " tokens"));
  }
}

void AppendHeads(const model::DecoderConfig& model, std::string& text) {
  AppendRow(text, "heads",
            model.latent.kv_rank > 0
                ? absl::StrCat(model.num_attention_heads, " of ", model.head_dim, ", values of ",
                               model.latent.value_head_dim, "; keys and values from ", model.latent.kv_rank)
                : absl::StrCat(model.num_attention_heads, " of ", model.head_dim, " (",
                               model.num_key_value_heads, " for keys and values)"));
}

void AppendModel(const JobPlan& plan, std::string& text) {
  const model::DecoderConfig& model = plan.model;
  text += "Model\n";
  AppendRow(text, "parameters", GroupedText(model::NumParameters(model)));
  AppendRow(text, "layers",
            absl::StrCat(GroupedText(model.num_hidden_layers), model.pattern.empty() ? "" : ": ",
                         plan.resolved_model.hybrid_pattern()));
  AppendPattern(plan, text);
  AppendRow(text, "hidden, intermediate", absl::StrCat(model.hidden_size, ", ", model.intermediate_size));
  if (const ops::RouterConfig& router = model.moe.router; router.experts > 0) {
    AppendRow(text, "experts",
              absl::StrCat(router.experts, " of ", model.moe.intermediate_size, ", ", router.top_k,
                           " a token; ", GroupedText(model::NumActiveParameters(model)), " parameters active",
                           router.deals ? "; dealt evenly, for measurements of speed" : ""));
    if (model.moe.capacity.factor > 0) {
      AppendRow(text, "capacity", CapacityText(plan));
    }
    if (model.moe.most_rows > 0) {
      AppendRow(text, "room for rows", RoomText(plan));
    }
    if (model.moe.shared_intermediate_size > 0) {
      AppendRow(text, "shared experts", absl::StrCat("of ", model.moe.shared_intermediate_size, " together"));
    }
  }
  if (model.num_attention_heads > 0) {
    AppendHeads(model, text);
  }
  AppendRow(text, "vocabulary",
            absl::StrCat(model.vocab_size, model.tie_word_embeddings ? " (tied head)" : " (untied head)"));
  AppendRow(text, "compute type", PrecisionText(plan));
}

void AppendStep(const JobPlan& plan, std::string& text) {
  const double flops = model::FlopsPerToken(plan.model, plan.batch.sequence_length);
  const double tokens = static_cast<double>(TokensPerStep(plan));
  text += "Step\n";
  AppendRow(text, "tokens",
            absl::StrCat(GroupedText(TokensPerStep(plan)), " = ranks ", plan.topology.MicrobatchesOf(1),
                         " x microbatches ", plan.train.microbatches_per_rank, " x sequences ",
                         plan.batch.sequences, " x length ", plan.batch.sequence_length));
  if (plan.batch.packs_documents) {
    AppendRow(text, "documents", "packed; FLOPs are counted as of attention to whole sequences");
  }
  AppendRow(text, "FLOPs a token", CountText(flops));
  AppendRow(
      text, "FLOPs a step",
      absl::StrCat(CountText(flops * tokens), ", a rank ", CountText(flops * tokens / plan.topology.world)));
  AppendRow(text, "steps",
            absl::StrCat(GroupedText(plan.train.steps), ", ",
                         GroupedText(plan.train.steps * TokensPerStep(plan)), " tokens in all"));
  AppendRow(text, "learning rate", LearningRateText(plan.train.optimizer.schedule, plan.train.steps));
  if (Validates(plan.train)) {
    const size_t texts = std::max<size_t>(1, plan.train.data.validation.size());
    AppendRow(text, "validation",
              absl::StrCat("every ", GroupedText(plan.train.validate_every_steps), " steps: at most ",
                           GroupedText(plan.train.validation_batches), " microbatches",
                           texts > 1 ? absl::StrCat(" of each of ", texts, " texts") : "", ", ",
                           ShareText(ValidationFlops(plan),
                                     flops * tokens * static_cast<double>(plan.train.validate_every_steps)),
                           " more FLOPs"));
  }
  if (!plan.train.recompute.empty()) {
    const Recomputation again = RecomputationOf(plan);
    AppendRow(
        text, "recomputed",
        absl::StrCat(absl::StrJoin(plan.train.recompute, ", "), ": ", CountText(again.flops),
                     "FLOPs a rank (", ShareText(again.flops, again.all_flops), " more), for an arena of ",
                     SizeText(std::abs(again.saved_bytes)), again.saved_bytes < 0 ? " more" : " less"));
  }
}

void AppendMemoryRow(std::string& text, const std::string& key, int64_t bytes) {
  absl::StrAppendFormat(&text, "  %-22s %12s  %18s\n", key, SizeText(bytes), GroupedText(bytes));
}

constexpr schedules::BufferKind kStates[] = {
    schedules::BufferKind::kWeights,   schedules::BufferKind::kPublished,
    schedules::BufferKind::kGradients, schedules::BufferKind::kOptimizerState,
    schedules::BufferKind::kNodeState,
};

bool IsState(int kind) {
  return std::any_of(std::begin(kStates), std::end(kStates),
                     [kind](schedules::BufferKind state) { return static_cast<int>(state) == kind; });
}

void AppendMemory(const JobPlan& plan, std::string& text) {
  const MemoryPlan memory = PlanMemory(plan);
  text += "Memory of one rank (bytes, exact)\n";
  int64_t rest = 0;  // of the persistent ones: inputs of a run, and its reports
  for (int kind = 0; kind < schedules::kNumBufferKinds; ++kind) {
    if (IsState(kind) && memory.persistent[kind] > 0) {
      AppendMemoryRow(text, schedules::ToText(static_cast<schedules::BufferKind>(kind)),
                      memory.persistent[kind]);
    } else {
      rest += memory.persistent[kind];
    }
  }
  AppendMemoryRow(text, "inputs and reports", rest);
  AppendMemoryRow(text, "buffers of a run", memory.alive_bytes);
  AppendMemoryRow(text, "alignment and gaps",
                  memory.arena_bytes - schedules::Total(memory.persistent) - memory.alive_bytes);
  AppendMemoryRow(text, "arena", memory.arena_bytes);
  AppendMemoryRow(text, "pinned on the host", memory.host_bytes);
  if (memory.checkpoint_bytes > 0) {
    AppendMemoryRow(text, "host, a checkpoint", memory.checkpoint_bytes);
  }
  if (memory.saved_bytes > 0) {
    AppendMemoryRow(text, "host, copies to save", memory.saved_bytes);
  }
  AppendRow(text, "budget of a run",
            absl::StrCat(SizeText(memory.budget_bytes), "; at least ", SizeText(memory.least_budget_bytes),
                         ", by default ", SizeText(memory.default_budget_bytes),
                         plan.topology.world > 1 ? ", so that communication overlaps" : ""));
}

// "layers.0-31": the units [first, last], which differ in the number at the end only.
std::string RangeName(const JobPlan& plan, size_t first, size_t last) {
  const std::string& name = plan.units[first].name;
  if (first == last) {
    return name;
  }
  const std::string& end = plan.units[last].name;
  return absl::StrCat(name, "-", end.substr(end.rfind('.') + 1));
}

// Whether two units following each other have the same numbers, and names like "layers.3".
bool IsAlike(const JobPlan& plan, const std::vector<UnitRow>& rows, size_t a, size_t b) {
  const auto stem = [&](size_t unit) {
    const std::string& name = plan.units[unit].name;
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
  };
  return !stem(a).empty() && stem(a) == stem(b) && rows[a] == rows[b];
}

void AppendUnits(const JobPlan& plan, std::string& text) {
  const std::vector<UnitRow> rows = UnitRows(plan);
  std::vector<std::pair<size_t, size_t>> ranges;  // first, last
  size_t width = 4;
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    if (unit > 0 && IsAlike(plan, rows, ranges.back().first, unit)) {
      ranges.back().second = unit;
    } else {
      ranges.emplace_back(unit, unit);
    }
    width = std::max(width, RangeName(plan, ranges.back().first, unit).size());
  }
  absl::StrAppendFormat(&text, "Units\n  %-*s %14s %16s %12s %9s %11s\n", static_cast<int>(width), "unit",
                        "parameters", "a rank, padded", "gathered", "gathers", "reductions");
  for (const auto& [first, last] : ranges) {
    absl::StrAppendFormat(&text, "  %-*s %14s %16s %12s %9d %11d\n", static_cast<int>(width),
                          RangeName(plan, first, last), GroupedText(rows[first].parameters),
                          GroupedText(rows[first].held_elements), SizeText(rows[first].gathered_bytes),
                          rows[first].gathers, rows[first].reductions);
  }
}

void AppendProgramRow(const schedules::Program& program, std::string& text) {
  const WaitCounts waits = CountWaits(program);
  const std::string microbatches =
      program.num_microbatches == 0
          ? ""
          : absl::StrCat(program.num_microbatches,
                         program.num_microbatches == 1 ? " microbatch, " : " microbatches, ");
  AppendRow(text, program.name,
            absl::StrCat(program.instructions.size(), " instructions, ", microbatches, waits.all,
                         " waits between streams, ", waits.for_memory, " of them for memory"));
}

void AppendPrograms(const JobPlan& plan, std::string& text) {
  text += "Programs (checked: formed, ordered, apart, graphed, agreed, meant)\n";
  for (const schedules::Program* program : plan.stage.All()) {
    AppendProgramRow(*program, text);
  }
  AppendRow(text, "communicators",
            absl::StrJoin(CommunicatorUses(plan), ", ",
                          [&](std::string* out, const schedules::CommunicatorUse& use) {
                            const auto options = plan.group_options.find(use.group);
                            absl::StrAppend(out, use.purpose, " (", use.group, ", ",
                                            platform::CountedText(GroupRanks(plan, use.group), "rank"),
                                            options == plan.group_options.end()
                                                ? ""
                                                : absl::StrCat(", ", parallel::ToText(options->second)),
                                            ")");
                          }));
  AppendRow(text, "digest", plan.program_digest);
}

}  // namespace

std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options) {
  std::string text = absl::StrCat("Plan of ", plan.train.name, "\n");
  AppendModel(plan, text);
  AppendStep(plan, text);
  AppendMemory(plan, text);
  AppendUnits(plan, text);
  AppendPrograms(plan, text);
  if (options.program) {
    for (const schedules::Program* program : plan.stage.All()) {
      absl::StrAppend(&text, "\n", schedules::ToText(*program, plan.outline));
    }
  }
  return text;
}

}  // namespace tandem::plan
