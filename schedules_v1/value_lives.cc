#include "schedules_v1/value_lives.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/fold_order.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {

ValueLives::ValueLives(const Outline& outline, const Program& program, const Refusal& refuse)
    : outline_(outline),
      program_(program),
      refuse_(refuse),
      lives_(static_cast<size_t>(2) * outline.values.size() * program.num_microbatches),
      expected_(outline.values.size(), 0) {
  for (const Node& node : outline.nodes) {
    for (const ValueId value : node.backward.gradient_writes) {
      ++expected_[value];
    }
  }
}

ValueLives::Life& ValueLives::LifeOf(ValueId value, int microbatch, bool of_gradient) {
  return lives_[(2 * microbatch + of_gradient) * outline_.values.size() + value];
}

absl::Status ValueLives::CheckOpen(int i, const Life& life, ValueId value, int microbatch,
                                   bool of_gradient) const {
  if (life.state == State::kOpen) {
    return absl::OkStatus();
  }
  const std::string reads = absl::StrCat("reads ", of_gradient ? "the gradient of " : "",
                                         outline_.values[value].name, " mb ", microbatch);
  return life.state == State::kNever ? refuse_.Of(i, absl::StrCat(reads, ", which nothing has written"))
                                     : refuse_.Of(i, absl::StrCat(reads, " after"), life.last);
}

absl::Status ValueLives::Read(int i, ValueId value, int microbatch) {
  Life& life = LifeOf(value, microbatch, false);
  if (absl::Status status = CheckOpen(i, life, value, microbatch, false); !status.ok()) {
    return status;
  }
  life.last = i;
  return absl::OkStatus();
}

absl::Status ValueLives::ReadGradient(int i, ValueId value) {
  const int microbatch = program_.instructions[i].microbatch;
  Life& life = LifeOf(value, microbatch, true);
  if (absl::Status status = CheckOpen(i, life, value, microbatch, true); !status.ok()) {
    return status;
  }
  if (life.contributions < expected_[value]) {
    const int later = LaterContribution(value, microbatch, i);
    return refuse_.Of(
        i,
        absl::StrCat("reads the gradient of ", outline_.values[value].name, " with ", life.contributions,
                     " of ", expected_[value], " contributions", later >= 0 ? ", before" : ""),
        later);
  }
  life.last = i;
  return absl::OkStatus();
}

absl::Status ValueLives::Write(int i, ValueId value) {
  Life& life = LifeOf(value, program_.instructions[i].microbatch, false);
  if (life.state != State::kNever) {
    return refuse_.ByHygiene(hygiene::kSecondWrite, i,
                             absl::StrCat("writes ", outline_.values[value].name, " a second time, after"),
                             life.opened);
  }
  life = {.state = State::kOpen, .opened = i, .last = i, .written = i};
  return absl::OkStatus();
}

absl::Status ValueLives::WriteGradient(int i, ValueId value, bool add) {
  Life& life = LifeOf(value, program_.instructions[i].microbatch, true);
  const std::string& name = outline_.values[value].name;
  if (life.state == State::kClosed) {
    return refuse_.Of(i, absl::StrCat("writes the gradient of ", name, " after"), life.last);
  }
  if (life.state == State::kNever) {
    if (add) {
      return refuse_.Of(i, absl::StrCat("adds to the gradient of ", name, ", which nothing has written"));
    }
    life = {.state = State::kOpen, .opened = i, .last = i, .written = i, .contributions = 1};
    return absl::OkStatus();
  }
  if (!add) {
    return refuse_.Of(i, absl::StrCat("overwrites the gradient of ", name, " of"), life.last);
  }
  if (absl::Status status = CheckFoldOrder(program_, refuse_, i, life.written, name); !status.ok()) {
    return status;
  }
  if (life.contributions == expected_[value]) {
    return refuse_.Of(i, absl::StrCat("writes the gradient of ", name, " after the last contribution of"),
                      life.written);
  }
  life.last = i;
  life.written = i;
  ++life.contributions;
  return absl::OkStatus();
}

absl::Status ValueLives::Release(int i) {
  const Instruction& instruction = program_.instructions[i];
  Life& life = LifeOf(instruction.target, instruction.microbatch, instruction.of_gradient);
  if (life.state == State::kNever) {
    return refuse_.Of(i, "releases what nothing has written");
  }
  if (life.state == State::kClosed) {
    return refuse_.Of(i, "comes after", life.last);
  }
  const StreamKind allocated = program_.instructions[life.opened].stream;
  if (instruction.stream != allocated) {
    return refuse_.ByHygiene(
        hygiene::kReleaseStream, i,
        absl::StrCat("is on stream ", ToText(instruction.stream), ", but the memory is of"), life.opened,
        absl::StrCat(" on stream ", ToText(allocated)));
  }
  life.state = State::kClosed;
  life.last = i;
  return absl::OkStatus();
}

int ValueLives::LaterContribution(ValueId value, int microbatch, int after) const {
  for (int i = after + 1; i < static_cast<int>(program_.instructions.size()); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (TargetsNode(instruction.opcode) && instruction.microbatch == microbatch) {
      const std::vector<ValueId>& writes =
          AccessOf(outline_.nodes[instruction.target], instruction.opcode).gradient_writes;
      if (std::find(writes.begin(), writes.end(), value) != writes.end()) {
        return i;
      }
    }
  }
  return -1;
}

absl::Status ValueLives::End() const {
  const size_t values = outline_.values.size();
  for (size_t index = 0; index < lives_.size(); ++index) {
    const Life& life = lives_[index];
    if (life.state == State::kOpen) {
      return refuse_.ByHygiene(
          hygiene::kNeverClosed, life.opened,
          absl::StrCat("writes ", index / values % 2 == 1 ? "the gradient of " : "",
                       outline_.values[index % values].name, ", which is never released; it is used last by"),
          life.last);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules_v1
