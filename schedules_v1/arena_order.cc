#include "schedules_v1/arena_order.h"

#include <algorithm>
#include <iterator>

#include "schedules_v1/access.h"

namespace tandem::schedules_v1 {

ArenaOrder::ArenaOrder(const Outline& outline, const Program& program)
    : outline_(outline),
      program_(program),
      offsets_(2 * outline.values.size() * static_cast<size_t>(program.num_microbatches), -1) {}

int64_t& ArenaOrder::Offset(ValueId value, int microbatch, bool of_gradient) {
  return offsets_[(2 * microbatch + of_gradient) * outline_.values.size() + value];
}

int64_t ArenaOrder::BytesOf(ValueId value, bool of_gradient) const {
  return of_gradient ? outline_.values[value].gradient_bytes.bound : outline_.values[value].bytes.bound;
}

const std::vector<int>& ArenaOrder::Issue(int i) {
  after_.clear();
  const Instruction& instruction = program_.instructions[i];
  const int microbatch = instruction.microbatch;
  const auto open = [&](ValueId value, bool of_gradient) {
    Allocate(BytesOf(value, of_gradient), Offset(value, microbatch, of_gradient));
  };
  if (instruction.opcode == Opcode::kLoadBatch) {
    open(instruction.target, false);
  } else if (instruction.opcode == Opcode::kRelease) {
    Free(Offset(instruction.target, microbatch, instruction.of_gradient),
         BytesOf(instruction.target, instruction.of_gradient), i);
  } else if (TargetsNode(instruction.opcode)) {
    const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
    for (const ValueId value : access.writes) {
      open(value, false);
    }
    for (size_t k = 0; k < access.gradient_writes.size(); ++k) {
      if (!instruction.add_value_gradients[k]) {
        open(access.gradient_writes[k], true);
      }
    }
    if (access.scratch.bound > 0) {
      int64_t offset = -1;
      Allocate(access.scratch.bound, offset);
      Free(offset, access.scratch.bound, i);
    }
  }
  return after_;
}

void ArenaOrder::Allocate(int64_t bytes, int64_t& offset) {
  offset = blocks_.Allocate(bytes);
  const int64_t end = offset + std::max<int64_t>(bytes, 1);
  auto next = freed_.upper_bound(offset);
  if (next != freed_.begin()) {
    --next;
  }
  while (next != freed_.end() && next->first < end) {
    const auto [begin, freed] = *next;
    if (freed.end <= offset) {
      ++next;
      continue;
    }
    after_.push_back(freed.by);
    next = freed_.erase(next);
    // What the new block leaves of it still belongs to whoever gave it back.
    if (begin < offset) {
      freed_.emplace(begin, Freed{offset, freed.by});
    }
    if (freed.end > end) {
      next = freed_.emplace(end, freed).first;
    }
  }
}

void ArenaOrder::Free(int64_t offset, int64_t bytes, int i) {
  blocks_.Free(offset);
  freed_[offset] = {offset + std::max<int64_t>(bytes, 1), i};
}

}  // namespace tandem::schedules_v1
