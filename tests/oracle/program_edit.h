// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>

#include "schedules/program/program.h"

namespace tandem::oracle {

// One small thing changed in one program of a stage.
struct Mutant {
  std::string kind;    // "drop operand"
  std::string change;  // "drop operand 2 of 12 (reduce layers.0 mb 0)"
  schedules::Program schedules::StagePrograms::*program = nullptr;
  schedules::StagePrograms stage;
};

// A change of one program of a stage that is being made: choices at random, moves that keep waits with their
// instructions, and all that follows from operands rederived. Not thread-safe.
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
  // One of the instructions that are such, if there is one.
  std::optional<int> Pick(const std::function<bool(const schedules::Instruction&)>& is_such);
  std::optional<int> Pick(schedules::Opcode opcode);
  std::optional<int> PickWithOperands();

  // Instruction i comes to stand before what is at `to` (the end: the size). Waits follow their instructions;
  // what now points up is dropped.
  void Move(int i, int to);
  void Remove(int i);
  void Insert(const schedules::Instruction& instruction, int at);

  // Whether ids and parts are in range, which passes take as they are.
  bool IsSound();
  // Names the change. Returns true.
  bool Did(const std::string& change);
  // The same, with all waits and addresses derived from the operands.
  bool Anew(const std::string& change);

 private:
  // Passes know no locals that nothing touches.
  void DropUntouched();

  const schedules::Outline& outline_;
  std::mt19937_64& random_;
  Mutant mutant_;
};

}  // namespace tandem::oracle
