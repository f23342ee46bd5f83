#include "schedules_v1/memory.h"

#include "schedules_v1/block_allocator.h"
#include "schedules_v1/effects.h"

namespace tandem::schedules_v1 {
namespace {

class Replay {
 public:
  Replay(const Outline& outline, const Program& program, absl::Span<const int64_t> persistent)
      : outline_(outline),
        program_(program),
        offsets_(2 * outline.values.size() * program.num_microbatches, -1) {
    for (const int64_t bytes : persistent) {
      blocks_.Allocate(bytes);
    }
    curve_.peak_bytes = blocks_.peak();
    curve_.peak_in_use = blocks_.in_use();
    curve_.persistent = blocks_.in_use();
  }

  MemoryCurve Run() {
    for (const Instruction& instruction : program_.instructions) {
      Issue(instruction);
    }
    curve_.peak_bytes = blocks_.peak();
    return std::move(curve_);
  }

 private:
  void Issue(const Instruction& instruction) {
    int64_t scratch_offset = -1;
    if (instruction.opcode == Opcode::kLoadBatch) {
      Open(instruction.target, instruction.microbatch, false);
    } else if (instruction.opcode == Opcode::kRelease) {
      Close(instruction.target, instruction.microbatch, instruction.of_gradient);
    } else if (TargetsNode(instruction.opcode)) {
      const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
      for (const ValueId value : access.writes) {
        Open(value, instruction.microbatch, false);
      }
      for (size_t i = 0; i < access.gradient_writes.size(); ++i) {
        if (!instruction.add_value_gradients[i]) {
          Open(access.gradient_writes[i], instruction.microbatch, true);
        }
      }
      if (access.scratch.bound > 0) {
        scratch_offset = blocks_.Allocate(access.scratch.bound);
        use_.scratch = access.scratch.bound;
      }
    }
    Note();
    if (scratch_offset >= 0) {
      blocks_.Free(scratch_offset);
      use_.scratch = 0;
    }
  }

  void Note() {
    curve_.points.push_back({blocks_.in_use(), blocks_.peak(), use_});
    if (curve_.peak_instruction < 0 || blocks_.in_use() > curve_.peak_in_use) {
      curve_.peak_instruction = static_cast<int>(curve_.points.size()) - 1;
      curve_.peak_in_use = blocks_.in_use();
      curve_.peak = use_;
    }
  }

  int64_t& Offset(ValueId value, int microbatch, bool of_gradient) {
    return offsets_[(2 * microbatch + of_gradient) * outline_.values.size() + value];
  }
  int64_t BytesOf(ValueId value, bool of_gradient) const {
    return of_gradient ? outline_.values[value].gradient_bytes.bound : outline_.values[value].bytes.bound;
  }

  void Open(ValueId value, int microbatch, bool of_gradient) {
    Offset(value, microbatch, of_gradient) = blocks_.Allocate(BytesOf(value, of_gradient));
    (of_gradient ? use_.gradients : use_.activations) += BytesOf(value, of_gradient);
  }

  void Close(ValueId value, int microbatch, bool of_gradient) {
    blocks_.Free(std::exchange(Offset(value, microbatch, of_gradient), -1));
    (of_gradient ? use_.gradients : use_.activations) -= BytesOf(value, of_gradient);
  }

  const Outline& outline_;
  const Program& program_;
  BlockAllocator blocks_;
  std::vector<int64_t> offsets_;  // of what is open
  MemoryUse use_;
  MemoryCurve curve_;
};

}  // namespace

MemoryCurve ReplayMemory(const Outline& outline, const Program& program,
                         absl::Span<const int64_t> persistent) {
  return Replay(outline, program, persistent).Run();
}

}  // namespace tandem::schedules_v1
