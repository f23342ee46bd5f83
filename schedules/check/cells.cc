#include "schedules/check/cells.h"

#include <algorithm>

#include "schedules/program/text.h"

namespace tandem::schedules {

Cells::Cells(const Program& program) : program_(program) {
  for (int b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    const int count = std::max(1, static_cast<int>(buffer.parts.size()));
    first_.push_back(size());
    counts_.push_back(count);
    buffers_.insert(buffers_.end(), buffer.life == Life::kRing ? 2 * count : count, b);
  }
}

int Cells::InNextRun(int cell) const {
  const BufferId b = buffers_[cell];
  if (program_.buffers[b].life != Life::kRing) {
    return cell;
  }
  return cell < first_[b] + counts_[b] ? cell + counts_[b] : cell - counts_[b];
}

std::string Cells::Name(int cell) const {
  const BufferId b = buffers_[cell];
  const int place = cell - first_[b];
  return OperandName(program_, {.buffer = b,
                                .part = program_.buffers[b].parts.empty() ? -1 : place % counts_[b],
                                .former = place >= counts_[b]});
}

}  // namespace tandem::schedules
