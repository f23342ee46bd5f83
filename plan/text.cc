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
#include "absl/strings/str_split.h"
#include "jobspec/model_types.h"
#include "model/decoder_shapes.h"
#include "plan/memory_plan.h"
#include "plan/quantity_text.h"
#include "plan/recomputation.h"
#include "platform/counted_text.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

using nlohmann::json;

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

// The kinds of layers of a pattern, each with its nodes and the layers that are such.
void AppendPattern(const JobPlan& plan, std::string& text) {
  const std::vector<std::vector<model::LayerSymbol>>& pattern = plan.model.pattern;
  std::map<std::vector<model::LayerSymbol>, std::vector<int64_t>> layers;
  for (size_t layer = 0; layer < pattern.size(); ++layer) {
    layers[pattern[layer]].push_back(static_cast<int64_t>(layer));
  }
  for (const auto& [symbols, with] : layers) {
    std::vector<std::string> nodes;
    for (const schedules::Node& node : WholeOutline(plan).nodes) {
      if (node.layer == with.front()) {
        nodes.push_back(node.kind);
      }
    }
    std::string letters;
    for (const model::LayerSymbol symbol : symbols) {
      letters += static_cast<char>(symbol);
    }
    AppendRow(text, symbols.size() > 1 ? absl::StrCat("  [", letters, "]") : absl::StrCat("  ", letters),
              absl::StrCat(absl::StrJoin(nodes, ", "), ": layers ",
                           jobspec::WindowLayersText(with, plan.model.num_hidden_layers)));
  }
  if (const model::MambaMixer& mamba = plan.model.mamba; mamba.heads > 0) {
    AppendRow(text, "mixers",
              absl::StrCat(mamba.heads, " heads of ", mamba.head_dim, " (", mamba.groups,
                           " groups), states of ", mamba.state, ", kept every ", mamba.chunk, " tokens"));
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

bool Validates(const JobPlan& plan) {
  return plan.train.validate_every_steps > 0 && plan.train.validation_batches > 0;
}

// Of one validation, at most: forwards alone, which are a third of a step's.
double ValidationFlops(const JobPlan& plan) {
  const auto texts = static_cast<double>(std::max<size_t>(1, plan.train.data.validation.size()));
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) / 3 * texts *
         static_cast<double>(plan.train.validation_batches * plan.batch.sequences *
                             plan.batch.sequence_length);
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
  if (Validates(plan)) {
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

// Of the unit's layouts, gaps included.
int64_t Elements(const JobPlan& plan, size_t unit) {
  int64_t elements = 0;
  for (const fsdp::Layout& layout : plan.layouts[unit]) {
    elements += layout.elements;
  }
  return elements;
}

// The elements of the unit's weights, and of each moment, on every rank, padding included.
int64_t HeldElements(const JobPlan& plan, size_t unit) {
  int64_t elements = 0;
  for (const fsdp::Layout& layout : plan.layouts[unit]) {
    elements += fsdp::HeldRange(layout, MeshOf(plan, unit, /*rank=*/0)).size();
  }
  return elements;
}

struct UnitRow {
  int64_t parameters = 0;  // of all experts, so that the rows add up to the model's
  int64_t gathered_bytes = 0;
  int gathers = 0;
  int reductions = 0;
  int validation_gathers = 0;
  bool operator==(const UnitRow&) const = default;
};

std::vector<UnitRow> UnitRows(const JobPlan& plan) {
  std::vector<UnitRow> rows(plan.units.size());
  const std::vector<fsdp::ClassLayouts> whole = WholeLayouts(plan);
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    for (const fsdp::Layout& layout : whole[unit]) {
      rows[unit].parameters += fsdp::ParameterElements(layout);
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
    rows[instruction.target].validation_gathers += instruction.opcode == schedules::Opcode::kUnshard;
  }
  return rows;
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
  return !stem(a).empty() && stem(a) == stem(b) && Elements(plan, a) == Elements(plan, b) &&
         rows[a] == rows[b];
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
                          GroupedText(HeldElements(plan, first)), SizeText(rows[first].gathered_bytes),
                          rows[first].gathers, rows[first].reductions);
  }
}

struct WaitCounts {
  int all = 0;
  int for_memory = 0;
};

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

json ModelJson(const JobPlan& plan) {
  const model::DecoderConfig& model = plan.model;
  json experts;
  if (const ops::RouterConfig& router = model.moe.router; router.experts > 0) {
    experts = {{"num_experts", router.experts},
               {"num_experts_per_tok", router.top_k},
               {"moe_intermediate_size", model.moe.intermediate_size},
               {"decoder_sparse_step", model.moe.decoder_sparse_step},
               {"first_k_dense_replace", model.moe.first_k_dense_replace},
               {"capacity_factor", model.moe.capacity.factor},
               {"pad_to_capacity", model.moe.capacity.pads},
               {"shared_intermediate_size", model.moe.shared_intermediate_size}};
  }
  return {{"parameters", model::NumParameters(model)},
          {"active_parameters", model::NumActiveParameters(model)},
          {"moe", experts},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.intermediate_size},
          {"num_hidden_layers", model.num_hidden_layers},
          {"num_attention_heads", model.num_attention_heads},
          {"num_key_value_heads", model.num_key_value_heads},
          {"head_dim", model.head_dim},
          {"vocab_size", model.vocab_size},
          {"tie_word_embeddings", model.tie_word_embeddings},
          {"compute", ComputeName(plan)},
          {"precision", PrecisionText(plan)}};
}

json RecomputationJson(const JobPlan& plan) {
  if (plan.train.recompute.empty()) {
    return nullptr;
  }
  const Recomputation again = RecomputationOf(plan);
  return {{"what", plan.train.recompute},
          {"flops_of_a_rank", again.flops},
          {"other_flops_of_a_rank", again.all_flops},
          {"saved_arena_bytes", again.saved_bytes}};
}

// Null where the job does not validate.
json ValidationJson(const JobPlan& plan) {
  if (!Validates(plan)) {
    return nullptr;
  }
  json texts = json::array();
  for (const jobspec::DataText& text : plan.train.data.validation) {
    texts.push_back(text.name);
  }
  return {{"every_steps", plan.train.validate_every_steps},
          {"microbatches_of_a_text", plan.train.validation_batches},
          {"texts", texts},
          {"flops", ValidationFlops(plan)}};
}

json StepJson(const JobPlan& plan) {
  const double flops = model::FlopsPerToken(plan.model, plan.batch.sequence_length);
  return {{"tokens", TokensPerStep(plan)},
          {"ranks", plan.topology.world},
          {"microbatches_per_rank", plan.train.microbatches_per_rank},
          {"sequences_per_microbatch", plan.batch.sequences},
          {"sequence_length", plan.batch.sequence_length},
          {"packs_documents", plan.batch.packs_documents},
          {"steps", plan.train.steps},
          {"flops_per_token", flops},
          {"recompute", RecomputationJson(plan)},
          {"validation", ValidationJson(plan)},
          {"flops", flops * static_cast<double>(TokensPerStep(plan))}};
}

json MemoryJson(const JobPlan& plan) {
  const MemoryPlan memory = PlanMemory(plan);
  json kinds = json::array();
  for (int kind = 0; kind < schedules::kNumBufferKinds; ++kind) {
    if (memory.persistent[kind] > 0) {
      kinds.push_back({{"kind", schedules::ToText(static_cast<schedules::BufferKind>(kind))},
                       {"bytes", memory.persistent[kind]}});
    }
  }
  return {{"arena_bytes", memory.arena_bytes},
          {"persistent_bytes", memory.persistent_bytes},
          {"alive_bytes", memory.alive_bytes},
          {"gap_bytes", memory.gap_bytes},
          {"budget_bytes", memory.budget_bytes},
          {"least_budget_bytes", memory.least_budget_bytes},
          {"default_budget_bytes", memory.default_budget_bytes},
          {"host_bytes", memory.host_bytes},
          {"checkpoint_bytes", memory.checkpoint_bytes},
          {"saved_bytes", memory.saved_bytes},
          {"kinds", kinds}};
}

json UnitsJson(const JobPlan& plan) {
  const std::vector<UnitRow> rows = UnitRows(plan);
  json units = json::array();
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    units.push_back({{"name", plan.units[unit].name},
                     {"parameters", rows[unit].parameters},
                     {"elements", Elements(plan, unit)},
                     {"shard_elements", HeldElements(plan, unit)},
                     {"gathered_bytes", rows[unit].gathered_bytes},
                     {"gathers", rows[unit].gathers},
                     {"reductions", rows[unit].reductions},
                     {"validation_gathers", rows[unit].validation_gathers}});
  }
  return units;
}

json CommunicatorsJson(const JobPlan& plan) {
  json communicators = json::array();
  for (const schedules::CommunicatorUse& use : CommunicatorUses(plan)) {
    communicators.push_back({{"group", use.group},
                             {"purpose", use.purpose},
                             {"ranks", GroupRanks(plan, use.group)},
                             {"window", use.window}});
  }
  return communicators;
}

constexpr const char* kLifeNames[] = {"local", "persistent", "ring"};  // by schedules::Life

json ProgramJson(const JobPlan& plan, const schedules::Program& program) {
  json buffers = json::array();
  for (const schedules::Buffer& buffer : program.buffers) {
    buffers.push_back({{"name", buffer.name},
                       {"kind", schedules::ToText(buffer.kind)},
                       {"life", kLifeNames[static_cast<int>(buffer.life)]},
                       {"bytes", buffer.bytes.bound},
                       {"address", buffer.address}});
  }
  const std::string text = schedules::ToText(program, plan.outline);
  json lines = json::array();
  for (const auto& line :
       absl::StrSplit(text.substr(text.find("\ninstructions\n") + 14), '\n', absl::SkipEmpty())) {
    lines.push_back(std::string(line));
  }
  const WaitCounts waits = CountWaits(program);
  return {{"name", program.name}, {"microbatches", program.num_microbatches},
          {"waits", waits.all},   {"memory_waits", waits.for_memory},
          {"buffers", buffers},   {"instructions", lines}};
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

json PlanToJson(const JobPlan& plan) {
  json programs = json::object();
  for (const schedules::Program* program : plan.stage.All()) {
    programs[program->name] = ProgramJson(plan, *program);
  }
  return {{"name", plan.train.name},
          {"model", ModelJson(plan)},
          {"step", StepJson(plan)},
          {"memory", MemoryJson(plan)},
          {"units", UnitsJson(plan)},
          {"communicators", CommunicatorsJson(plan)},
          {"programs", programs},
          {"program_digest", plan.program_digest},
          {"parameters_digest", plan.parameters_digest}};
}

}  // namespace tandem::plan
