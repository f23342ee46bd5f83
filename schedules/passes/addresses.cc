#include <algorithm>

#include "platform/check.h"
#include "schedules/passes/passes.h"

namespace tandem::schedules {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Per buffer and stream: the place of the last access, and what all accesses know to have ended.
class Accesses {
 public:
  Accesses(const VectorClocks& clocks, const Program& program)
      : num_streams_(clocks.num_streams()),
        last_(program.buffers.size() * num_streams_, 0),
        known_(program.buffers.size() * num_streams_, std::numeric_limits<int>::max()),
        first_(program.buffers.size(), -1),
        end_(program.buffers.size(), -1) {
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const int stream = clocks.stream(i);
      const absl::Span<const int> end = clocks.End(i);
      for (const Operand& operand : program.instructions[i].operands) {
        if (program.buffers[operand.buffer].life != Life::kLocal) {
          continue;
        }
        const size_t row = static_cast<size_t>(operand.buffer) * num_streams_;
        if (first_[operand.buffer] < 0) {
          first_[operand.buffer] = i;
        }
        end_[operand.buffer] = i;
        last_[row + stream] = clocks.place(i);
        for (int s = 0; s < num_streams_; ++s) {
          known_[row + s] = std::min(known_[row + s], end[s] - (s == stream));
        }
      }
    }
  }

  // All accesses of a have ended when the first of b starts.
  bool Before(BufferId a, BufferId b) const {
    const int* last = &last_[static_cast<size_t>(a) * num_streams_];
    const int* known = &known_[static_cast<size_t>(b) * num_streams_];
    for (int s = 0; s < num_streams_; ++s) {
      if (last[s] > known[s]) {
        return false;
      }
    }
    return true;
  }

  int first(BufferId buffer) const { return first_[buffer]; }  // instruction; -1: nothing touches it
  int last(BufferId buffer) const { return end_[buffer]; }

 private:
  const int num_streams_;
  std::vector<int> last_;
  std::vector<int> known_;
  std::vector<int> first_;
  std::vector<int> end_;
};

// Lays one region out in issue order: each buffer goes to the lowest gap whose latest owners have all ended
// for it.
class FirstFit {
 public:
  explicit FirstFit(const Accesses& accesses) : accesses_(accesses) {}

  int64_t Place(BufferId buffer, int64_t bytes) {
    size_t begin = 0;
    int64_t free = 0;
    size_t k = 0;
    for (; k < segments_.size() && free < bytes; ++k) {
      const Segment& segment = segments_[k];
      if (segment.owner < 0 || accesses_.Before(segment.owner, buffer)) {
        free += segment.bytes;
      } else {
        begin = k + 1;
        free = 0;
      }
    }
    int64_t address = 0;
    for (size_t j = 0; j < begin; ++j) {
      address += segments_[j].bytes;
    }
    const int64_t rest = free - bytes;  // of the last segment that it takes
    std::vector<Segment> placed = {{bytes, buffer}};
    if (rest > 0) {
      placed.push_back({rest, segments_[k - 1].owner});
    }
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(begin),
                    segments_.begin() + static_cast<std::ptrdiff_t>(k));
    segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(begin), placed.begin(), placed.end());
    return address;
  }

 private:
  struct Segment {
    int64_t bytes = 0;
    BufferId owner = -1;
  };
  const Accesses& accesses_;
  std::vector<Segment> segments_;  // from the region's begin, without gaps
};

}  // namespace

PersistentBytes PlacePersistent(std::vector<Buffer>& buffers) {
  PersistentBytes ends;
  for (Buffer& buffer : buffers) {
    int64_t& end = IsHost(buffer.kind) ? ends.host : ends.arena;
    buffer.address = RoundUp(end, buffer.alignment);
    end = RoundUp(buffer.address + ExtentOf(buffer), buffer.alignment);
  }
  return ends;
}

PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, Program& program) {
  const Accesses accesses(clocks, program);
  std::vector<BufferId> locals;
  for (BufferId buffer = 0; buffer < static_cast<int>(program.buffers.size()); ++buffer) {
    if (program.buffers[buffer].life == Life::kLocal) {
      TANDEM_CHECK(accesses.first(buffer) >= 0, "every local is touched");
      locals.push_back(buffer);
    }
  }
  std::stable_sort(locals.begin(), locals.end(), [&](BufferId a, BufferId b) {
    return accesses.first(a) < accesses.first(b) ||
           (accesses.first(a) == accesses.first(b) &&
            program.buffers[a].bytes.bound > program.buffers[b].bytes.bound);
  });
  PersistentBytes ends = persistent;
  FirstFit arena(accesses);
  FirstFit host(accesses);
  for (const BufferId id : locals) {
    Buffer& buffer = program.buffers[id];
    const bool on_host = IsHost(buffer.kind);
    const int64_t bytes = RoundUp(buffer.bytes.bound, buffer.alignment);
    const int64_t base = on_host ? persistent.host : persistent.arena;
    buffer.address = base + (on_host ? host : arena).Place(id, bytes);
    int64_t& end = on_host ? ends.host : ends.arena;
    end = std::max(end, buffer.address + bytes);
  }
  return ends;
}

}  // namespace tandem::schedules
