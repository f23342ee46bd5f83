#include <algorithm>
#include <utility>

#include "platform/check.h"
#include "schedules/passes/passes.h"
#include "schedules/passes/region_layout.h"

namespace tandem::schedules {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Offsets of `buffers` as another program has placed what has the same names, in the same order; -1 for what
// that does not have.
RegionLayout As(const Program& other, int64_t base, const std::vector<BufferId>& buffers,
                const Program& program) {
  RegionLayout layout{.begins = std::vector<int64_t>(program.buffers.size(), -1)};
  size_t next = 0;
  for (const BufferId buffer : buffers) {
    while (next < other.buffers.size() && other.buffers[next].name != program.buffers[buffer].name) {
      ++next;
    }
    if (next == other.buffers.size()) {
      return layout;
    }
    const int64_t begin = other.buffers[next].address - base;
    layout.begins[buffer] = begin;
    layout.end = std::max(layout.end, begin + RoundUp(program.buffers[buffer].bytes.bound, 256));
  }
  return layout;
}

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

PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, int64_t budget,
                            const Program* like, Program& program) {
  const AccessOrder order(clocks, program);
  std::vector<int64_t> bytes(program.buffers.size(), 0);
  PersistentBytes ends = persistent;
  for (const bool on_host : {false, true}) {
    std::vector<BufferId> buffers;
    for (BufferId id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.life == Life::kLocal && IsHost(buffer.kind) == on_host) {
        TANDEM_CHECK(order.first(id) >= 0, "every local is touched");
        bytes[id] = RoundUp(buffer.bytes.bound, buffer.alignment);
        buffers.push_back(id);
      }
    }
    int64_t& end = on_host ? ends.host : ends.arena;
    const int64_t base = end;
    RegionLayout layout;
    if (like != nullptr) {
      layout = As(*like, base, buffers, program);
    }
    const bool known = like != nullptr && std::all_of(buffers.begin(), buffers.end(), [&](BufferId buffer) {
                         return layout.begins[buffer] >= 0;
                       });
    if (!known || !MayShareAsIn(order, buffers, bytes, layout)) {
      layout = LayOutRegion(order, buffers, bytes, on_host ? 0 : budget + budget / 50);
    }
    for (const BufferId buffer : buffers) {
      program.buffers[buffer].address = base + layout.begins[buffer];
    }
    end = base + layout.end;
  }
  return ends;
}

}  // namespace tandem::schedules
