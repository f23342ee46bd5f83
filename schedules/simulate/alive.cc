#include "schedules/simulate/alive.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {
namespace {

// Per buffer and stream, the place (from 1) of its last access on the stream; 0: none there.
class LastAccesses {
 public:
  explicit LastAccesses(const Program& program)
      : num_streams_(program.streams.size()), places_(program.buffers.size() * num_streams_) {
    std::vector<int> next(num_streams_, 0);
    for (const Instruction& instruction : program.instructions) {
      const int place = ++next[instruction.stream];
      for (const Operand& operand : instruction.operands) {
        places_[operand.buffer * num_streams_ + instruction.stream] = place;
      }
    }
  }

  // What knows `known` knows that every access of the buffer has ended.
  bool HaveEnded(BufferId buffer, absl::Span<const int> known) const {
    const auto* places = &places_[buffer * num_streams_];
    for (size_t s = 0; s < num_streams_; ++s) {
      if (places[s] > known[s]) {
        return false;
      }
    }
    return true;
  }

 private:
  const size_t num_streams_;
  std::vector<int> places_;
};

}  // namespace

int64_t MostBytesAlive(const Program& program) {
  const LastAccesses accesses(program);
  VectorClocks clocks(static_cast<int>(program.streams.size()));
  std::vector<BufferId> touched;  // locals, by their first access
  std::vector<bool> seen(program.buffers.size());
  // Per stream: how many of `touched` it has looked at, and which of these may be alive for it.
  std::vector<std::pair<size_t, std::vector<BufferId>>> alive(program.streams.size());
  int64_t most = 0;
  for (const Instruction& instruction : program.instructions) {
    for (const Wait& wait : instruction.waits) {
      clocks.Wait(instruction.stream, wait.instruction);
    }
    bool first_touch = false;
    for (const Operand& operand : instruction.operands) {
      const Buffer& buffer = program.buffers[operand.buffer];
      if (!seen[operand.buffer] && buffer.life == Life::kLocal && !IsHost(buffer.kind)) {
        seen[operand.buffer] = true;
        touched.push_back(operand.buffer);
        first_touch = true;
      }
    }
    if (first_touch) {
      auto& [looked_at, buffers] = alive[instruction.stream];
      buffers.insert(buffers.end(), touched.begin() + static_cast<int64_t>(looked_at), touched.end());
      looked_at = touched.size();
      const absl::Span<const int> known = clocks.Now(instruction.stream);
      std::erase_if(buffers, [&](BufferId buffer) { return accesses.HaveEnded(buffer, known); });
      int64_t bytes = 0;
      for (const BufferId buffer : buffers) {
        bytes += RingStride(program.buffers[buffer]);
      }
      most = std::max(most, bytes);
    }
    const int issued = clocks.Issue(instruction.stream);
    if (instruction.opcode == Opcode::kHostWait) {  // what is issued later is issued after it has ended
      for (StreamId stream = 0; stream < clocks.num_streams(); ++stream) {
        clocks.Wait(stream, issued);
      }
    }
  }
  return most;
}

}  // namespace tandem::schedules
