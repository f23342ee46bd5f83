// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>

#include "schedules/program/program.h"

namespace tandem::oracle {

// A stage with one small change in one of its programs.
struct Mutant {
  std::string kind;    // "drop operand"
  std::string change;  // "drop operand 2 of 12 (reduce layers.0 mb 0)"
  schedules::Program schedules::StagePrograms::*program = nullptr;
  schedules::StagePrograms stage;
};

// Makes a change in one program of a stage: it chooses at random, moves instructions with their waits, and
// derives again what follows from operands. Not thread-safe.
class ProgramEdit {
 public:
  // Edits any program of the stage, in most cases `train`.
  ProgramEdit(const schedules::Outline& outline, const schedules::StagePrograms& stage,
              std::mt19937_64& random);

  const schedules::Outline& outline() const { return outline_; }
  Mutant& mutant() { return mutant_; }
  schedules::Program& program() { return mutant_.stage.*mutant_.program; }
  schedules::Instruction& At(int i) { return program().instructions[i]; }
  int Size() { return static_cast<int>(program().instructions.size()); }
  std::string Name(int i);

  int Below(size_t bound) { return static_cast<int>(random_() % bound); }
  // A random instruction that satisfies `is_such`; nullopt if there is none.
  std::optional<int> Pick(const std::function<bool(const schedules::Instruction&)>& is_such);
  std::optional<int> Pick(schedules::Opcode opcode);
  std::optional<int> PickWithOperands();

  // Moves instruction i before the one at `to` (at the end if `to` is the size). Waits follow their
  // instructions; waits that would point to a higher position are dropped.
  void Move(int i, int to);
  void Remove(int i);
  void Insert(const schedules::Instruction& instruction, int at);

  // Whether ids and parts are in range, as the passes require.
  bool IsSound();
  // Records the name of the change. Returns true.
  bool Did(const std::string& change);
  // Does the same, and derives all waits and addresses from the operands.
  bool Anew(const std::string& change);

 private:
  // Removes locals that nothing touches, which the passes do not accept.
  void DropUntouched();

  const schedules::Outline& outline_;
  std::mt19937_64& random_;
  Mutant mutant_;
};

}  // namespace tandem::oracle
