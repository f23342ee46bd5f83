// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_memory.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "fsdp/run_inputs.h"
#include "model/decoder_shapes.h"
#include "model/node_kinds.h"
#include "plan/job_plan.h"
#include "trainer/stage_memory.h"

namespace tandem::trainer {

using schedules::Buffer;
using schedules::BufferKind;
using schedules::Life;
using schedules::Operand;
using schedules::Program;

namespace {

// Calls visit(buffer) for the host's buffers of one kind that the program's instructions touch, each once.
template <typename Visit>
void ForEachTouched(const Program& program, BufferKind kind, const Visit& visit) {
  std::vector<bool> touched(program.buffers.size());
  for (const schedules::Instruction& instruction : program.instructions) {
    for (const Operand& operand : instruction.operands) {
      touched[operand.buffer] = true;
    }
  }
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (touched[i] && program.buffers[i].kind == kind) {
      visit(program.buffers[i]);
    }
  }
}

// The node whose forward writes that value.
const schedules::Node& WriterOf(const schedules::Outline& outline, schedules::ValueId value) {
  for (const schedules::Node& node : outline.nodes) {
    const std::vector<schedules::ValueId>& writes = node.forward.writes;
    if (std::find(writes.begin(), writes.end(), value) != writes.end()) {
      return node;
    }
  }
  throw std::logic_error(outline.values.at(value).name + " has no producer");
}

// Sparse layers of the whole model, in their order.
std::vector<int> RouterLayers(const schedules::Outline& outline) {
  std::vector<int> layers;
  for (const schedules::Node& node : outline.nodes) {
    if (node.kind == model::kRoute.name) {
      layers.push_back(node.layer);
    }
  }
  return layers;
}

// The sum of the reports of one layer's microbatches; their losses, which a balance node may have, and what
// `sharing` ranks that share the experts get of each, one by one.
RouterLoad LoadOf(int layer, const std::vector<const double*>& reports,
                  const std::vector<const double*>& losses, int64_t experts, int64_t sharing) {
  const model::RouterReport at{.experts = experts};
  RouterLoad load{.layer = layer, .tokens = std::vector<double>(experts)};
  for (size_t m = 0; m < reports.size(); ++m) {
    const double* const report = reports[m];
    for (int64_t expert = 0; expert < experts; ++expert) {
      load.tokens[expert] += report[expert];
    }
    load.dropped += report[at.dropped()];
    const double* const both = losses.empty() ? report + at.balance() : losses[m];
    load.losses.push_back({.balance = both[0], .z = both[1]});
    if (sharing > 1) {
      std::vector<double>& rows = load.rows.emplace_back(sharing);
      for (int64_t expert = 0; expert < experts; ++expert) {
        rows[expert * sharing / experts] += report[expert];
      }
    }
  }
  return load;
}

}  // namespace

RunMemory::RunMemory(const plan::JobPlan& plan, const StageMemory& memory) : plan_(plan) {
  for (const Program* program : plan.stage.All()) {
    for (const int parity : {0, 1}) {
      Element& element = programs_[program][parity];
      ForEachTouched(*program, BufferKind::kHostInputs,
                     [&](const Buffer& buffer) { element.inputs = memory.At(buffer, parity); });
      ForEachTouched(*program, BufferKind::kHostBatch, [&](const Buffer& buffer) {
        for (int m = 0; m < program->num_microbatches; ++m) {
          element.batches.push_back(
              reinterpret_cast<int64_t*>(memory.At(buffer, parity).begin + buffer.parts[m].begin));
        }
      });
      ForEachTouched(*program, BufferKind::kHostLosses, [&](const Buffer& buffer) {
        const schedules::Node& writer = WriterOf(plan.outline, buffer.subject);
        // The balance node of a layer is behind its router.
        std::vector<const double*>& doubles =
            writer.kind == model::kRoute.name
                ? element.routers.emplace_back(Router{.layer = writer.layer}).reports
            : writer.kind == model::kBalance.name   ? element.routers.back().losses
            : writer.kind == model::kDepthHead.name ? element.depth_losses.emplace_back()
                                                    : element.losses;
        for (int m = 0; m < program->num_microbatches; ++m) {
          doubles.push_back(
              reinterpret_cast<const double*>(memory.At(buffer, parity).begin + buffer.parts[m].begin));
        }
      });
      ForEachTouched(*program, BufferKind::kHostOutcome,
                     [&](const Buffer& buffer) { element.outcome = memory.At(buffer, parity); });
      ForEachTouched(*program, BufferKind::kHostUpdateNorms, [&](const Buffer& buffer) {
        element.norms.push_back({memory.At(buffer, parity).as<const fsdp::ParameterNorms>(),
                                 plan.units[buffer.subject].parameters.size()});
      });
    }
  }
}

void RunMemory::WriteInputs(const RunRequest& request, const Program& program, int parity) const {
  const device::Memory memory = programs_.at(&program)[parity].inputs;
  if (memory.begin == nullptr) {
    return;
  }
  const plan::OptimizerConfig& config = plan_.train.optimizer;
  *memory.as<fsdp::RunInputs>() = {
      .step = request.run.computed,
      .requests = {.bits = request.requests,
                   .profile = request.profile.ToNumber(),
                   .limit = request.norm_limit},
      .update = request.update,
      .learning_rate = request.learning_rate,
      .correction1 = fsdp::BiasCorrection(config.beta1, request.update),
      .correction2 = fsdp::BiasCorrection(config.beta2, request.update),
  };
}

void RunMemory::AddOtherStages(int microbatches, RunRecord& record) const {
  record.losses.resize(microbatches);
  if (microbatches == 0) {
    return;
  }
  record.depth_losses.resize(plan_.model.depths.number, std::vector<double>(microbatches));
  const int64_t experts = plan_.model.moe.router.experts;
  const std::vector<double> zeros(model::RouterReport{.experts = experts}.size());
  const std::vector<const double*> reports(microbatches, zeros.data());
  std::vector<RouterLoad> all;
  for (const int layer : RouterLayers(plan_.whole->outline)) {
    const auto own = std::find_if(record.routers.begin(), record.routers.end(),
                                  [&](const RouterLoad& load) { return load.layer == layer; });
    all.push_back(own != record.routers.end() ? *own
                                              : LoadOf(layer, reports, {}, experts, plan_.model.moe.ranks));
  }
  record.routers = std::move(all);
}

const std::vector<int64_t*>& RunMemory::Batches(const Program& program, int parity) const {
  return programs_.at(&program)[parity].batches;
}

RunRecord RunMemory::Read(const RunRequest& request, const Program& program, int parity) const {
  const Element& element = programs_.at(&program)[parity];
  RunRecord record{.run = request.run, .learning_rate = request.learning_rate};
  for (const double* loss : element.losses) {
    record.losses.push_back(*loss);
  }
  for (const std::vector<const double*>& of_depth : element.depth_losses) {
    std::vector<double>& losses = record.depth_losses.emplace_back();
    for (const double* loss : of_depth) {
      losses.push_back(*loss);
    }
  }
  for (const Router& router : element.routers) {
    record.routers.push_back(LoadOf(router.layer, router.reports, router.losses,
                                    plan_.model.moe.router.experts, plan_.model.moe.ranks));
  }
  if (plan_.whole != nullptr) {
    AddOtherStages(program.num_microbatches, record);
  }
  if (element.outcome.begin != nullptr) {
    record.outcome = *element.outcome.as<const fsdp::NormOutcome>();
  }
  for (const auto& [norms, count] : element.norms) {
    record.norms.insert(record.norms.end(), norms, norms + count);
  }
  return record;
}

}  // namespace tandem::trainer
