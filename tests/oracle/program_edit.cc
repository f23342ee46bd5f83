// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/program_edit.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "schedules/passes/passes.h"
#include "schedules/program/text.h"

namespace tandem::oracle {

using schedules::Buffer;
using schedules::Instruction;
using schedules::Life;
using schedules::Operand;
using schedules::Program;
using schedules::StagePrograms;
using schedules::Wait;

ProgramEdit::ProgramEdit(const schedules::Outline& outline, const StagePrograms& stage,
                         std::mt19937_64& random)
    : outline_(outline), random_(random), mutant_{"", "", nullptr, stage} {
  static constexpr Program StagePrograms::*kPrograms[] = {
      &StagePrograms::train,  &StagePrograms::train,    &StagePrograms::train,     &StagePrograms::begin,
      &StagePrograms::update, &StagePrograms::validate, &StagePrograms::train_save};
  do {
    mutant_.program = kPrograms[Below(std::size(kPrograms))];
  } while ((stage.*mutant_.program).instructions.empty());
}

std::string ProgramEdit::Name(int i) { return std::to_string(i) + " (" + ToText(At(i), outline_) + ")"; }

std::optional<int> ProgramEdit::Pick(const std::function<bool(const Instruction&)>& is_such) {
  std::vector<int> found;
  for (int i = 0; i < Size(); ++i) {
    if (is_such(At(i))) {
      found.push_back(i);
    }
  }
  return found.empty() ? std::nullopt : std::optional<int>(found[Below(found.size())]);
}

std::optional<int> ProgramEdit::Pick(schedules::Opcode opcode) {
  return Pick([&](const Instruction& in) { return in.opcode == opcode; });
}

std::optional<int> ProgramEdit::PickWithOperands() {
  return Pick([](const Instruction& in) { return !in.operands.empty(); });
}

void ProgramEdit::Move(int i, int to) {
  std::vector<int> order;
  for (int k = 0; k <= Size(); ++k) {
    if (k == to) {
      order.push_back(i);
    }
    if (k < Size() && k != i) {
      order.push_back(k);
    }
  }
  std::vector<int> place(Size());
  for (int k = 0; k < Size(); ++k) {
    place[order[k]] = k;
  }
  const std::vector<Instruction> old = program().instructions;
  for (int k = 0; k < Size(); ++k) {
    At(k) = old[order[k]];
    for (Wait& wait : At(k).waits) {
      wait.instruction = place[wait.instruction];
    }
    std::erase_if(At(k).waits, [&](const Wait& wait) { return wait.instruction >= k; });
  }
}

void ProgramEdit::Remove(int i) {
  program().instructions.erase(program().instructions.begin() + i);
  for (Instruction& in : program().instructions) {
    std::erase_if(in.waits, [&](const Wait& wait) { return wait.instruction == i; });
    for (Wait& wait : in.waits) {
      wait.instruction -= wait.instruction > i ? 1 : 0;
    }
  }
}

void ProgramEdit::Insert(const Instruction& instruction, int at) {
  for (Instruction& in : program().instructions) {
    for (Wait& wait : in.waits) {
      wait.instruction += wait.instruction >= at ? 1 : 0;
    }
  }
  program().instructions.insert(program().instructions.begin() + at, instruction);
}

bool ProgramEdit::IsSound() {
  return std::all_of(
      program().instructions.begin(), program().instructions.end(), [&](const Instruction& in) {
        return std::all_of(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
          return operand.part < static_cast<int>(program().buffers[operand.buffer].parts.size());
        });
      });
}

bool ProgramEdit::Did(const std::string& change) {
  mutant_.change = program().name + ": " + change;
  return true;
}

void ProgramEdit::DropUntouched() {
  std::vector<int> number(program().buffers.size(), -1);
  for (const Instruction& in : program().instructions) {
    for (const Operand& operand : in.operands) {
      number[operand.buffer] = 0;
    }
  }
  std::vector<Buffer> kept;
  for (size_t b = 0; b < program().buffers.size(); ++b) {
    if (number[b] == 0 || program().buffers[b].life != Life::kLocal) {
      number[b] = static_cast<int>(kept.size());
      kept.push_back(program().buffers[b]);
    }
  }
  program().buffers = std::move(kept);
  for (Instruction& in : program().instructions) {
    for (Operand& operand : in.operands) {
      operand.buffer = number[operand.buffer];
    }
  }
}

bool ProgramEdit::Anew(const std::string& change) {
  DropUntouched();
  for (Instruction& in : program().instructions) {
    in.waits.clear();
  }
  const int64_t no_budget = std::numeric_limits<int64_t>::max() / 4;
  const schedules::VectorClocks clocks = InsertWaits(no_budget, {}, program());
  int64_t host = 0;
  for (const Buffer& buffer : program().buffers) {
    host = buffer.life != Life::kLocal && IsHost(buffer.kind)
               ? std::max(host, buffer.address + ExtentOf(buffer))
               : host;
  }
  const schedules::PersistentBytes ends =
      PlaceLocals(clocks, {mutant_.stage.persistent_bytes, host}, no_budget, {}, nullptr, program());
  mutant_.stage.arena_bytes = std::max(mutant_.stage.arena_bytes, ends.arena);
  mutant_.stage.host_bytes = std::max(mutant_.stage.host_bytes, ends.host);
  return Did(change);
}

}  // namespace tandem::oracle
