#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"
#include "schedules_v1/refusal.h"
#include "schedules_v1/unit_leases.h"
#include "schedules_v1/value_lives.h"

namespace tandem::schedules_v1 {

// The part of the checker that walks one program in issue order and knows what is open (value_lives.h,
// unit_leases.h) and how far the step has come: reductions, norm, updates, report. A program begins and ends
// with nothing open. Issue order stands for every order, because what conflicts is ordered as it is issued
// (waits point back, and the checker proves that nothing else is in conflict).
//
// Every method requires operands that operands.h accepts; `outline` and `program` must outlive it.
class Lifetimes {
 public:
  Lifetimes(const Outline& outline, const Program& program);
  Lifetimes(const Lifetimes&) = delete;
  Lifetimes& operator=(const Lifetimes&) = delete;

  // Instruction i, from 0, each once.
  absl::Status Apply(int i);

  // After the last instruction: everything is closed, every unit that has gradients was stepped.
  absl::Status End() const;

 private:
  absl::Status ApplyNode(int i);
  absl::Status ApplyUnshard(int i);
  absl::Status ApplyNorm(int i);
  absl::Status ApplyStep(int i);
  absl::Status ApplyReport(int i);
  absl::Status ApplySnapshot(int i);

  const Outline& outline_;
  const Program& program_;
  const Refusal refuse_;
  ValueLives values_;
  UnitLeases units_;
  std::vector<int> steps_;  // unit → its OptimizerStep, or -1
  int step_ = -1;           // the last OptimizerStep, or -1
  int norm_ = -1;           // GradientNorm, or -1
  int report_ = -1;         // Report, or -1
  int snapshot_ = -1;       // Snapshot, or -1
  int load_ = -1;           // the first LoadBatch, or -1
};

}  // namespace tandem::schedules_v1
