// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/cells.h"

#include <algorithm>

#include "schedules/program/text.h"

namespace tandem::schedules {

Cells::Cells(const Program& program) : program_(program) {
  first_.reserve(program.buffers.size());
  counts_.reserve(program.buffers.size());
  for (const Buffer& buffer : program.buffers) {
    const int count = std::max(1, static_cast<int>(buffer.parts.size()));
    first_.push_back(size_);
    counts_.push_back(count);
    size_ += buffer.life == Life::kRing ? 2 * count : count;
  }
}

std::string Cells::Name(int cell) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), cell);
  const BufferId b = static_cast<BufferId>(after - first_.begin()) - 1;
  const int place = cell - first_[b];
  return OperandName(program_, {.buffer = b,
                                .part = program_.buffers[b].parts.empty() ? -1 : place % counts_[b],
                                .former = place >= counts_[b]});
}

}  // namespace tandem::schedules
