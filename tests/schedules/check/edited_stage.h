// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "schedules/build/program_builder.h"
#include "schedules/check/check.h"
#include "schedules/passes/passes.h"
#include "schedules/program/text.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {

// The programs of a stage, for tests to change something in them.
struct EditedStage {
  Outline outline;
  BuildOptions options;
  StagePrograms stage;

  explicit EditedStage(Outline of, const std::string& strategy = "zero3", int num_microbatches = 2,
                       int ranks = 4)
      : outline(std::move(of)),
        options(OptionsFor(outline, strategy, num_microbatches, ranks)),
        stage(BuildStage(outline, options).value()) {}

  EditedStage(Outline of, StagePrograms programs) : outline(std::move(of)), stage(std::move(programs)) {}

  // The index of the first instruction at `from` or later with that text: "reduce layers.0 mb 1".
  int IndexOf(const Program& program, const std::string& text, int from = 0) const {
    for (int i = from; i < static_cast<int>(program.instructions.size()); ++i) {
      if (ToText(program.instructions[i], outline) == text) {
        return i;
      }
    }
    ADD_FAILURE() << "no instruction " << text << " in\n" << ToText(program, outline);
    return 0;
  }
  Instruction& Find(Program& program, const std::string& text) {
    return program.instructions[IndexOf(program, text)];
  }

  BufferId BufferNamed(const Program& program, const std::string& name) const {
    for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
      if (program.buffers[b].name == name) {
        return b;
      }
    }
    ADD_FAILURE() << "no buffer " << name << " in\n" << ToText(program, outline);
    return 0;
  }

  // Remove and Insert renumber the waits of the other instructions.
  static void Remove(Program& program, int i) {
    program.instructions.erase(program.instructions.begin() + i);
    for (Instruction& in : program.instructions) {
      std::erase_if(in.waits, [&](const Wait& wait) { return wait.instruction == i; });
      for (Wait& wait : in.waits) {
        wait.instruction -= wait.instruction > i ? 1 : 0;
      }
    }
  }
  static void Insert(Program& program, int at, Instruction instruction) {
    for (Instruction& in : program.instructions) {
      for (Wait& wait : in.waits) {
        wait.instruction += wait.instruction >= at ? 1 : 0;
      }
    }
    program.instructions.insert(program.instructions.begin() + at, std::move(instruction));
  }

  // The error of CheckStage; empty if there is none.
  std::string Check() const { return std::string(CheckStage(outline, options, stage).message()); }
};

// Derives waits and addresses again, so that only the meaning can be wrong.
inline void WaitAnew(EditedStage& edited, Program& program) {
  for (Instruction& in : program.instructions) {
    in.waits.clear();
  }
  const int64_t no_budget = std::numeric_limits<int64_t>::max() / 4;
  const VectorClocks clocks = InsertWaits(no_budget, {}, program);
  const PersistentBytes ends = PlaceLocals(clocks, {edited.stage.persistent_bytes, edited.stage.host_bytes},
                                           no_budget, {}, nullptr, program);
  edited.stage.arena_bytes = std::max(edited.stage.arena_bytes, ends.arena);
  edited.stage.host_bytes = std::max(edited.stage.host_bytes, ends.host);
}

}  // namespace tandem::schedules
