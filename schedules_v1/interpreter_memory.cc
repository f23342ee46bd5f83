// The part of InterpreterRun that reads and writes: what each opcode makes of the hashes that it finds.

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/interpreter_run.h"

namespace tandem::schedules_v1 {

namespace {

operations::PassKind KindOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
      return operations::PassKind::kForward;
    case Opcode::kBackwardInput:
      return operations::PassKind::kBackwardInput;
    case Opcode::kBackwardWeight:
      return operations::PassKind::kBackwardWeight;
    default:
      return operations::PassKind::kBackward;
  }
}

}  // namespace

Hash InterpreterRun::ReadCell(int r, int i, Cell cell, const char* what) {
  const Content& content = ranks_[r].cells[cell];
  if (content.state != Content::State::kHeld) {
    Fault(absl::StrCat(Describe(r, i), " reads ", what,
                       content.state == Content::State::kNever ? " that nothing has written"
                                                               : " that was released or overwritten"));
  }
  return content.hash;
}

// What the instruction reads when it starts.
void InterpreterRun::Read(int r, int i, std::vector<Hash>& inputs) {
  const Instruction& instruction = At(r, i);
  const Placement& placement = PlacementOf(r);
  const PlacedInstruction& placed = placement.at(i);
  const int num_units = static_cast<int>(outline_.units.size());
  switch (instruction.opcode) {
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
      const size_t first_part = access.reads.size() + access.gradient_reads.size();
      for (size_t k = 0; k < placed.inputs.size(); ++k) {
        if (k < first_part) {
          inputs.push_back(ReadCell(r, i, placed.inputs[k], "a value"));
        } else {
          inputs.push_back(operations::Parameters(ReadCell(r, i, placed.inputs[k], "a parameter slot"),
                                                  access.parameters[k - first_part]));
        }
      }
      break;
    }
    case Opcode::kUnshard:
      inputs.push_back(ReadCell(r, i, placement.Weights(instruction.target), "weights"));
      break;
    case Opcode::kReduceGradients:
      inputs.push_back(ReadContribution(r, i, instruction.target, placed.outputs.front()));
      break;
    case Opcode::kGradientNorm:
      for (UnitId unit = 0; unit < num_units; ++unit) {
        inputs.push_back(ReadCell(r, i, placement.GradientShard(unit), "a gradient shard"));
      }
      break;
    case Opcode::kOptimizerStep:
      inputs = {ReadCell(r, i, placement.Weights(instruction.target), "weights"),
                ReadCell(r, i, placement.OptimizerState(instruction.target), "an optimizer state"),
                ReadCell(r, i, placement.GradientShard(instruction.target), "a gradient shard"),
                ReadCell(r, i, placement.norm(), "the norm")};
      break;
    case Opcode::kReport:
      for (const Cell loss : placed.inputs) {
        inputs.push_back(ReadCell(r, i, loss, "a loss"));
      }
      if (ranks_[r].takes_norm) {
        inputs.push_back(ReadCell(r, i, placement.norm(), "the norm"));
        for (UnitId unit = 0; unit < num_units; ++unit) {
          inputs.push_back(ReadCell(r, i, placement.OptimizerState(unit), "an optimizer state"));
        }
      }
      break;
    case Opcode::kSnapshot:
      for (UnitId unit = 0; unit < num_units; ++unit) {
        inputs.push_back(ReadCell(r, i, placement.Weights(unit), "weights"));
      }
      for (UnitId unit = 0; unit < num_units; ++unit) {
        inputs.push_back(ReadCell(r, i, placement.OptimizerState(unit), "an optimizer state"));
      }
      break;
    case Opcode::kReshard:
    case Opcode::kRelease:
      ReadCell(r, i, placed.outputs.front(), "what it frees, but");
      break;
    case Opcode::kLoadBatch:
      break;
  }
}

Hash InterpreterRun::ReadContribution(int r, int i, UnitId unit, Cell slot) {
  const Content& content = ranks_[r].cells[slot];
  std::vector<Hash> parts(outline_.units[unit].parts.size(), 0);
  for (size_t part = 0; part < parts.size(); ++part) {
    if (!interpreted_.contributed[unit][part]) {
      continue;
    }
    if (content.state != Content::State::kHeld || content.unit != unit || content.parts[part] == 0) {
      Fault(absl::StrCat(Describe(r, i), " reduces a part that nothing has written"));
    } else {
      parts[part] = content.parts[part];
    }
  }
  return operations::Contribution(unit, parts);
}

void InterpreterRun::Write(int r, Cell cell, Hash hash) {
  RankRun& rank = ranks_[r];
  rank.cells[cell] = Held(hash);
  Overwrite(r, cell);
}

// Whatever else lay in its memory is gone.
void InterpreterRun::Overwrite(int r, Cell cell) {
  for (const Cell other : PlacementOf(r).overlaps(cell)) {
    if (ranks_[r].cells[other].state == Content::State::kHeld) {
      ranks_[r].cells[other].state = Content::State::kReleased;
    }
  }
}

void InterpreterRun::WriteAll(int r, int i, const InFlight& in_flight) {
  RankRun& rank = ranks_[r];
  const Instruction& instruction = At(r, i);
  const Placement& placement = PlacementOf(r);
  const PlacedInstruction& placed = placement.at(i);
  const std::vector<Hash>& inputs = in_flight.inputs;
  switch (instruction.opcode) {
    case Opcode::kLoadBatch:
      Write(r, placed.outputs.front(),
            in_flight.torn ? inputs.front() : operations::Batch(rank.position, r, instruction.microbatch));
      break;
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      WritePass(r, i, inputs);
      break;
    case Opcode::kUnshard:
      Write(r, placed.outputs.front(), inputs.front());
      break;
    case Opcode::kReshard:
    case Opcode::kRelease:
      rank.cells[placed.outputs.front()] = {.state = Content::State::kReleased};
      break;
    case Opcode::kReduceGradients: {
      const Cell shard = placement.GradientShard(instruction.target);
      Write(r, shard,
            instruction.add_parameter_gradients.front()
                ? operations::Add(ReadCell(r, i, shard, "a gradient shard"), inputs.front())
                : inputs.front());
      rank.cells[placed.outputs.front()] = {.state = Content::State::kReleased};
      break;
    }
    case Opcode::kGradientNorm:
      Write(r, placement.norm(), inputs.front());
      break;
    case Opcode::kOptimizerStep:
      Write(r, placement.Weights(instruction.target),
            operations::NextWeights(inputs[0], inputs[1], inputs[2], inputs[3]));
      Write(r, placement.OptimizerState(instruction.target),
            operations::NextOptimizerState(inputs[0], inputs[1], inputs[2], inputs[3]));
      break;
    case Opcode::kReport:
      rank.reports.push_back(operations::Report(inputs));
      break;
    case Opcode::kSnapshot:
      rank.snapshots.push_back(operations::Snapshot(inputs));
      break;
  }
}

void InterpreterRun::WritePass(int r, int i, const std::vector<Hash>& inputs) {
  const Instruction& instruction = At(r, i);
  const PlacedInstruction& placed = PlacementOf(r).at(i);
  const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
  const Hash pass = operations::Pass(instruction.target, KindOf(instruction.opcode), inputs);
  size_t output = 0;
  const auto next = [&] { return operations::Output(pass, static_cast<int>(output)); };
  for (size_t k = 0; k < access.writes.size(); ++k, ++output) {
    Write(r, placed.outputs[output], next());
  }
  for (size_t k = 0; k < access.gradient_writes.size(); ++k, ++output) {
    const Cell cell = placed.outputs[output];
    Write(r, cell,
          instruction.add_value_gradients[k]
              ? operations::Add(ReadCell(r, i, cell, "the gradient that it adds to, but"), next())
              : next());
  }
  for (size_t k = 0; k < access.parameter_gradients.size(); ++k, ++output) {
    const UnitPart part = access.parameter_gradients[k];
    Content& slot = ranks_[r].cells[placed.outputs[output]];
    const bool of_unit = slot.state == Content::State::kHeld && slot.unit == part.unit;
    if (instruction.add_parameter_gradients[k]) {
      if (!of_unit || slot.parts[part.part] == 0) {
        Fault(absl::StrCat(Describe(r, i), " adds to a part that nothing has written"));
        return;
      }
      slot.parts[part.part] = operations::Add(slot.parts[part.part], next());
      continue;
    }
    if (!of_unit) {
      slot = Held(0);
      slot.unit = part.unit;
      slot.parts.assign(outline_.units[part.unit].parts.size(), 0);
    }
    slot.parts[part.part] = next();
  }
  if (placed.scratch >= 0) {
    Overwrite(r, placed.scratch);
  }
}

}  // namespace tandem::schedules_v1
