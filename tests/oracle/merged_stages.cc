// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/merged_stages.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "tests/oracle/pipeline.h"

namespace tandem::oracle {

using schedules::Buffer;
using schedules::BufferId;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Life;
using schedules::Opcode;
using schedules::Operand;
using schedules::Origin;
using schedules::Program;
using schedules::StagePrograms;

namespace {

int Subject(const Origin& origin, const Buffer& buffer) {
  switch (InfoOf(buffer.kind).subject) {
    case schedules::SubjectKind::kUnit:
      return origin.units[buffer.subject];
    case schedules::SubjectKind::kState:
      return origin.states[buffer.subject];
    case schedules::SubjectKind::kValue:
      return origin.values[buffer.subject];
    default:
      return buffer.subject;
  }
}

int Target(const Origin& origin, const Instruction& in) {
  switch (InfoOf(in.opcode).target) {
    case schedules::TargetKind::kUnit:
      return origin.units[in.target];
    case schedules::TargetKind::kNode:
      return origin.nodes[in.target];
    case schedules::TargetKind::kValue:
      return origin.values[in.target];
    default:
      return in.target;
  }
}

// The programs of one name.
class Merger {
 public:
  Merger(const std::vector<schedules::Stage>& stages, std::vector<const Program*> programs)
      : stages_(stages), programs_(std::move(programs)), buffers_(stages.size()) {}

  // Makes `memory` as large as the program needs.
  Program Run(const std::vector<Ended>& order, StagePrograms& memory) {
    merged_ = {.name = programs_[0]->name, .num_microbatches = programs_[0]->num_microbatches};
    for (const bool local : {false, true}) {
      for (size_t s = 0; s < stages_.size(); ++s) {
        AddBuffers(s, local);
      }
    }
    memory.arena_bytes = std::max(memory.arena_bytes, arena_);
    memory.host_bytes = std::max(memory.host_bytes, host_);
    for (const Program* program : programs_) {
      streams_.push_back(static_cast<int>(merged_.streams.size()));
      communicators_.push_back(static_cast<int>(merged_.communicators.size()));
      merged_.streams.insert(merged_.streams.end(), program->streams.begin(), program->streams.end());
      merged_.communicators.insert(merged_.communicators.end(), program->communicators.begin(),
                                   program->communicators.end());
    }
    for (const auto& [s, i] : order) {
      Add(Translated(s, programs_[s]->instructions[i]));
    }
    return merged_;
  }

 private:
  void AddBuffers(size_t s, bool local) {
    const std::vector<Buffer>& buffers = programs_[s]->buffers;
    buffers_[s].resize(buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) {
      if ((buffers[b].life == Life::kLocal) != local) {
        continue;
      }
      Buffer buffer = buffers[b];
      buffer.name += " of stage " + std::to_string(s);
      buffer.subject = buffer.subject < 0 ? -1 : Subject(stages_[s].origin, buffer);
      int64_t& end = IsHost(buffer.kind) ? host_ : arena_;
      buffer.address = end;
      end += ExtentOf(buffer);
      buffers_[s][b] = static_cast<BufferId>(merged_.buffers.size());
      merged_.buffers.push_back(std::move(buffer));
    }
  }

  Instruction Translated(int s, Instruction in) const {
    in.waits.clear();
    in.target = in.target < 0 ? -1 : Target(stages_[s].origin, in);
    in.stream += streams_[s];
    in.communicator += in.communicator < 0 ? 0 : communicators_[s];
    for (Operand& operand : in.operands) {
      operand.buffer = buffers_[s][operand.buffer];
    }
    return in;
  }

  void Add(const Instruction& in) {
    if (in.opcode == Opcode::kSend) {
      sent_ = in.operands.front();
    } else if (in.opcode == Opcode::kReceive) {
      Copy(in, sent_, in.operands.front());
    } else if (in.opcode == Opcode::kGradientNorm) {
      norms_.push_back(in);
      if (norms_.size() == stages_.size()) {
        AddNorm();
      }
    } else if (in.opcode != Opcode::kHostWait) {
      merged_.instructions.push_back(in);
    }
  }

  void Copy(Instruction in, const Operand& from, const Operand& to) {
    in.opcode = Opcode::kReport;
    in.operands = {from, to};
    merged_.instructions.push_back(std::move(in));
  }

  // Terms in the order of units, then the inputs, then the outcome.
  void AddNorm() {
    Instruction all = norms_.front();
    std::vector<Operand> terms;
    std::vector<Operand> outcomes;
    Operand inputs;
    for (const Instruction& norm : norms_) {
      for (const Operand& operand : norm.operands) {
        const BufferKind kind = merged_.buffers[operand.buffer].kind;
        if (kind == BufferKind::kNormTerms) {
          terms.push_back(operand);
        } else if (kind == BufferKind::kInputs) {
          inputs = operand;
        } else {
          outcomes.push_back(operand);
        }
      }
    }
    std::stable_sort(terms.begin(), terms.end(), [&](const Operand& a, const Operand& b) {
      return merged_.buffers[a.buffer].subject < merged_.buffers[b.buffer].subject;
    });
    all.operands = std::move(terms);
    all.operands.push_back(inputs);
    all.operands.push_back(outcomes.front());
    merged_.instructions.push_back(all);
    for (size_t k = 1; k < outcomes.size(); ++k) {
      Copy(all, outcomes.front(), outcomes[k]);
    }
    norms_.clear();
  }

  const std::vector<schedules::Stage>& stages_;
  const std::vector<const Program*> programs_;
  std::vector<std::vector<BufferId>> buffers_;  // by stage and buffer: the merged one
  std::vector<int> streams_;                    // by stage: its first
  std::vector<int> communicators_;
  int64_t arena_ = 0;
  int64_t host_ = 0;
  Operand sent_;
  std::vector<Instruction> norms_;
  Program merged_;
};

}  // namespace

StagePrograms MergeStages(const std::vector<schedules::Stage>& stages,
                          const std::vector<StagePrograms>& programs) {
  StagePrograms merged;
  std::vector<schedules::Outline> outlines;
  for (const schedules::Stage& stage : stages) {
    outlines.push_back(stage.outline);
  }
  for (const auto member : {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::update,
                            &StagePrograms::validate, &StagePrograms::train_save}) {
    std::vector<const Program*> of_name;
    for (const StagePrograms& stage : programs) {
      of_name.push_back(&(stage.*member));
    }
    if (of_name[0]->instructions.empty()) {  // on all stages
      continue;
    }
    std::vector<Ended> order;
    FindHarmTogether(outlines, of_name, &order);
    merged.*member = Merger(stages, of_name).Run(order, merged);
  }
  return merged;
}

}  // namespace tandem::oracle
