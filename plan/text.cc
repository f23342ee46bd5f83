#include "plan/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "plan/memory.h"
#include "plan/quantity_text.h"
#include "schedules_v1/counts.h"
#include "schedules_v1/text.h"

namespace tandem::plan {
namespace {

using nlohmann::json;

bool HasValidation(const JobPlan& plan) { return !plan.validate_program.instructions.empty(); }

void AppendModel(const JobPlan& plan, std::string& text) {
  const model::DecoderConfig& model = plan.model;
  text += "Model\n";
  AppendRow(text, "parameters", GroupedText(model::NumParameters(model)));
  AppendRow(text, "layers", GroupedText(model.num_hidden_layers));
  AppendRow(text, "hidden, intermediate", absl::StrCat(model.hidden_size, ", ", model.intermediate_size));
  AppendRow(text, "heads",
            absl::StrCat(model.num_attention_heads, " of ", model.head_dim, " (", model.num_key_value_heads,
                         " for keys and values)"));
  AppendRow(text, "vocabulary",
            absl::StrCat(model.vocab_size, model.tie_word_embeddings ? " (tied head)" : " (untied head)"));
  AppendRow(text, "compute type", ComputeName(plan.compute));
}

void AppendStep(const JobPlan& plan, std::string& text) {
  const double flops = model::FlopsPerToken(plan.model, plan.batch.sequence_length);
  const double tokens = static_cast<double>(TokensPerStep(plan));
  text += "Step\n";
  AppendRow(text, "tokens",
            absl::StrCat(GroupedText(TokensPerStep(plan)), " = ranks ", plan.train.ranks, " x microbatches ",
                         plan.train.microbatches_per_rank, " x sequences ", plan.batch.sequences,
                         " x length ", plan.batch.sequence_length));
  AppendRow(text, "FLOPs a token", CountText(flops));
  AppendRow(
      text, "FLOPs a step",
      absl::StrCat(CountText(flops * tokens), ", a rank ", CountText(flops * tokens / plan.train.ranks)));
  AppendRow(text, "steps",
            absl::StrCat(GroupedText(plan.train.steps), ", ",
                         GroupedText(plan.train.steps * TokensPerStep(plan)), " tokens in all"));
}

void AppendMemoryRow(std::string& text, const std::string& key, int64_t bytes) {
  absl::StrAppendFormat(&text, "  %-22s %12s  %18s\n", key, SizeText(bytes), GroupedText(bytes));
}

void AppendMemory(const JobPlan& plan, const MemoryPlan& memory, std::string& text) {
  text += "Memory of one rank (bytes, exact)\n";
  for (const CategoryBytes& category : memory.categories) {
    AppendMemoryRow(text, category.category, category.bytes);
  }
  AppendMemoryRow(text, "alignment and gaps", memory.rounding_bytes);
  AppendMemoryRow(text, "arena", memory.arena_bytes);
  if (memory.train.peak_instruction >= 0) {
    AppendRow(text, "train peaks at",
              absl::StrCat(memory.train.peak_instruction, " (",
                           schedules_v1::ToText(plan.train_program.instructions[memory.train.peak_instruction],
                                             plan.outline_v1),
                           ")"));
  }
}

// "p1" of a unit: what its gathers use.
int SlotClass(const schedules_v1::Program& program, schedules_v1::SlotRole role, schedules_v1::UnitId unit) {
  for (const schedules_v1::Instruction& instruction : program.instructions) {
    for (const schedules_v1::SlotUse& slot : instruction.slots) {
      if (slot.role == role && slot.unit == unit) {
        return slot.size_class;
      }
    }
  }
  return -1;
}

struct UnitRow {
  int parameter_class = -1;
  int gradient_class = -1;
  schedules_v1::UnitCounts train;
  schedules_v1::UnitCounts validate;
  bool operator==(const UnitRow&) const = default;
};

std::vector<UnitRow> UnitRows(const JobPlan& plan) {
  const std::vector<schedules_v1::UnitCounts> train =
      schedules_v1::CountCollectives(plan.outline_v1, plan.train_program);
  const std::vector<schedules_v1::UnitCounts> validate =
      schedules_v1::CountCollectives(plan.outline_v1, plan.validate_program);
  std::vector<UnitRow> rows;
  for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
    rows.push_back({SlotClass(plan.train_program, schedules_v1::SlotRole::kParameters, unit),
                    SlotClass(plan.train_program, schedules_v1::SlotRole::kGradients, unit), train[unit],
                    validate[unit]});
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
  return !stem(a).empty() && stem(a) == stem(b) && plan.layouts[a].elements == plan.layouts[b].elements &&
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
  absl::StrAppendFormat(&text, "Units\n  %-*s %14s %14s %6s %9s %11s\n", static_cast<int>(width), "unit",
                        "elements", "of one rank", "slots", "gathers", "reductions");
  for (const auto& [first, last] : ranges) {
    absl::StrAppendFormat(&text, "  %-*s %14s %14s %6s %9d %11d\n", static_cast<int>(width),
                          RangeName(plan, first, last), GroupedText(plan.layouts[first].elements),
                          GroupedText(fsdp::ShardElements(plan.layouts[first], plan.train.ranks)),
                          absl::StrCat("p", rows[first].parameter_class, " g", rows[first].gradient_class),
                          rows[first].train.gathers, rows[first].train.reductions);
  }
}

void AppendSlotRows(const char* role, char letter, const std::vector<int64_t>& bytes,
                    const std::vector<int>& counts, std::string& text) {
  for (size_t i = 0; i < counts.size(); ++i) {
    AppendRow(text, absl::StrCat(role, " ", std::string(1, letter), i),
              absl::StrCat(counts[i], " x ", SizeText(bytes[i])));
  }
}

void AppendSlots(const schedules_v1::Program& program, std::string& text) {
  text += "Slots\n";
  AppendSlotRows("parameters", 'p', program.parameter_slot_bytes, program.parameter_slots, text);
  AppendSlotRows("gradients", 'g', program.gradient_slot_bytes, program.gradient_slots, text);
}

void AppendProgramRow(const schedules_v1::Program& program, std::string& text) {
  const schedules_v1::WaitCounts waits = schedules_v1::CountWaits(program);
  AppendRow(text, program.name,
            absl::StrCat(program.instructions.size(), " instructions, ", program.num_microbatches,
                         program.num_microbatches == 1 ? " microbatch, " : " microbatches, ", waits.waits,
                         " waits between streams, checked"));
}

json ModelJson(const JobPlan& plan) {
  const model::DecoderConfig& model = plan.model;
  return {{"parameters", model::NumParameters(model)},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.intermediate_size},
          {"num_hidden_layers", model.num_hidden_layers},
          {"num_attention_heads", model.num_attention_heads},
          {"num_key_value_heads", model.num_key_value_heads},
          {"head_dim", model.head_dim},
          {"vocab_size", model.vocab_size},
          {"tie_word_embeddings", model.tie_word_embeddings},
          {"compute", ComputeName(plan.compute)}};
}

json StepJson(const JobPlan& plan) {
  const double flops = model::FlopsPerToken(plan.model, plan.batch.sequence_length);
  return {{"tokens", TokensPerStep(plan)},
          {"ranks", plan.train.ranks},
          {"microbatches_per_rank", plan.train.microbatches_per_rank},
          {"sequences_per_microbatch", plan.batch.sequences},
          {"sequence_length", plan.batch.sequence_length},
          {"steps", plan.train.steps},
          {"flops_per_token", flops},
          {"flops", flops * static_cast<double>(TokensPerStep(plan))}};
}

json MemoryJson(const JobPlan& plan) {
  const MemoryPlan memory = PlanMemory(plan);
  json categories = json::array();
  for (const CategoryBytes& category : memory.categories) {
    categories.push_back({{"category", category.category}, {"bytes", category.bytes}});
  }
  json buffers = json::array();
  for (const Buffer& buffer : PersistentBuffers(plan)) {
    buffers.push_back({{"name", buffer.name}, {"category", buffer.category}, {"bytes", buffer.bytes}});
  }
  return {{"arena_bytes", memory.arena_bytes},
          {"persistent_bytes", memory.persistent_bytes},
          {"rounding_bytes", memory.rounding_bytes},
          {"train_peak_instruction", memory.train.peak_instruction},
          {"categories", categories},
          {"buffers", buffers}};
}

json UnitsJson(const JobPlan& plan) {
  const std::vector<UnitRow> rows = UnitRows(plan);
  json units = json::array();
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    units.push_back({{"name", plan.units[unit].name},
                     {"elements", plan.layouts[unit].elements},
                     {"shard_elements", fsdp::ShardElements(plan.layouts[unit], plan.train.ranks)},
                     {"parameter_slot_class", rows[unit].parameter_class},
                     {"gradient_slot_class", rows[unit].gradient_class},
                     {"gathers", rows[unit].train.gathers},
                     {"reductions", rows[unit].train.reductions},
                     {"validation_gathers", rows[unit].validate.gathers}});
  }
  return units;
}

json ProgramJson(const JobPlan& plan, const schedules_v1::Program& program) {
  json lines = json::array();
  for (const auto& line : absl::StrSplit(schedules_v1::ToText(program, plan.outline_v1), '\n', absl::SkipEmpty())) {
    if (line.front() != '#') {
      lines.push_back(std::string(line));
    }
  }
  return {{"name", program.name},
          {"microbatches", program.num_microbatches},
          {"waits", schedules_v1::CountWaits(program).waits},
          {"parameter_slot_bytes", program.parameter_slot_bytes},
          {"parameter_slots", program.parameter_slots},
          {"gradient_slot_bytes", program.gradient_slot_bytes},
          {"gradient_slots", program.gradient_slots},
          {"instructions", lines}};
}

}  // namespace

std::string PlanToText(const JobPlan& plan, const PlanTextOptions& options) {
  std::string text = absl::StrCat("Plan of ", plan.train.name, "\n");
  AppendModel(plan, text);
  AppendStep(plan, text);
  AppendMemory(plan, PlanMemory(plan), text);
  AppendUnits(plan, text);
  AppendSlots(plan.train_program, text);
  text += "Programs\n";
  AppendProgramRow(plan.train_program, text);
  if (HasValidation(plan)) {
    AppendProgramRow(plan.validate_program, text);
  }
  AppendRow(text, "digest", plan.program_digest);
  if (options.program) {
    absl::StrAppend(&text, "\n", schedules_v1::ToText(plan.train_program, plan.outline_v1));
    if (HasValidation(plan)) {
      absl::StrAppend(&text, "\n", schedules_v1::ToText(plan.validate_program, plan.outline_v1));
    }
  }
  return text;
}

json PlanToJson(const JobPlan& plan) {
  json programs = {{"train", ProgramJson(plan, plan.train_program)}};
  if (HasValidation(plan)) {
    programs["validate"] = ProgramJson(plan, plan.validate_program);
  }
  return {{"name", plan.train.name},
          {"model", ModelJson(plan)},
          {"step", StepJson(plan)},
          {"memory", MemoryJson(plan)},
          {"units", UnitsJson(plan)},
          {"programs", programs},
          {"program_digest", plan.program_digest},
          {"layout_digest", plan.layout_digest}};
}

}  // namespace tandem::plan
