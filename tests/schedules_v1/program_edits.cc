#include "tests/schedules/program_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {

int FindInstruction(const Outline& outline, const Program& program, const std::string& text, int from) {
  for (int i = from; i < static_cast<int>(program.instructions.size()); ++i) {
    if (ToText(program.instructions[i], outline) == text) {
      return i;
    }
  }
  ADD_FAILURE() << "no instruction " << text;
  return 0;
}

Program Without(const Program& program, int i) {
  Program result = program;
  result.instructions.erase(result.instructions.begin() + i);
  for (Instruction& instruction : result.instructions) {
    std::erase(instruction.waits, i);
    for (int& wait : instruction.waits) {
      wait -= wait > i;
    }
  }
  return result;
}

Program Moved(const Program& program, int i, int j) {
  const int size = static_cast<int>(program.instructions.size());
  std::vector<int> order;  // new place → old
  for (int k = 0; k <= size; ++k) {
    if (k == j) {
      order.push_back(i);
    }
    if (k < size && k != i) {
      order.push_back(k);
    }
  }
  std::vector<int> place(size);
  for (int k = 0; k < size; ++k) {
    place[order[k]] = k;
  }
  Program result = program;
  for (int k = 0; k < size; ++k) {
    result.instructions[k] = program.instructions[order[k]];
    std::vector<int>& waits = result.instructions[k].waits;
    for (int& wait : waits) {
      wait = place[wait];
    }
    std::erase_if(waits, [&](int wait) { return wait >= k; });
    std::sort(waits.begin(), waits.end());
  }
  return result;
}

Program Doubled(const Program& program, int i, int j) {
  Program result = program;
  for (Instruction& instruction : result.instructions) {
    for (int& wait : instruction.waits) {
      wait += wait >= j;
    }
  }
  result.instructions.insert(result.instructions.begin() + j, program.instructions[i]);
  return result;
}

}  // namespace tandem::schedules_v1
