// SPDX-License-Identifier: Apache-2.0
#include "plan/json.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "model/parameter_and_flop_counts.h"
#include "plan/memory_plan.h"
#include "plan/recomputation.h"
#include "plan/text.h"
#include "schedules/program/text.h"

namespace tandem::plan {
namespace {

using nlohmann::json;

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
               {"most_rows", model.moe.most_rows},
               {"shared_intermediate_size", model.moe.shared_intermediate_size}};
  }
  return {{"parameters", model::NumParameters(model)},
          {"active_parameters", model::NumActiveParameters(model)},
          {"moe", experts},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.intermediate_size},
          {"num_hidden_layers", model.num_hidden_layers},
          {"mtp_depths", model.depths.number},
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
  if (!Validates(plan.train)) {
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
                     {"elements", rows[unit].elements},
                     {"shard_elements", rows[unit].held_elements},
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
