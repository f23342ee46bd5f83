// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Numbers the smallest pieces of memory over which two instructions can conflict: each part of a buffer, or
// the buffer if it has no parts; for a ring, separate cells for this run's element and the former run's.
// Persistent buffers come first in every program of a stage, so their cells have the same numbers in all
// programs.
class Cells {
 public:
  struct Range {
    int begin = 0;
    int end = 0;
  };

  // The program must outlive the cells.
  explicit Cells(const Program& program);

  int size() const { return size_; }

  // The operand's buffer and part must exist.
  Range Of(const Operand& operand) const {
    const Range all = Of(operand.buffer, operand.former);
    return operand.part < 0 ? all : Range{all.begin + operand.part, all.begin + operand.part + 1};
  }

  Range Of(BufferId buffer, bool former) const {
    const int count = counts_[buffer];
    const int begin = first_[buffer] + (former ? count : 0);
    return {begin, begin + count};
  }

  std::string Name(int cell) const;

 private:
  const Program& program_;
  std::vector<int> first_;   // per buffer
  std::vector<int> counts_;  // per buffer: cells of one element
  int size_ = 0;
};

}  // namespace tandem::schedules
