// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "platform/check.h"
#include "schedules/passes/passes.h"
#include "schedules/passes/region_layout.h"

namespace tandem::schedules {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Offsets of `buffers` as another program has placed what has the same names, in the same order; nothing if
// it lacks one of them.
std::optional<RegionLayout> LayoutAsIn(const Program& other, int64_t base,
                                       const std::vector<BufferId>& buffers,
                                       const std::vector<int64_t>& bytes, const Program& program) {
  RegionLayout layout{.begins = std::vector<int64_t>(program.buffers.size(), -1)};
  size_t next = 0;
  for (const BufferId buffer : buffers) {
    while (next < other.buffers.size() && other.buffers[next].name != program.buffers[buffer].name) {
      ++next;
    }
    if (next == other.buffers.size()) {
      return std::nullopt;
    }
    layout.begins[buffer] = other.buffers[next].address - base;
    layout.end = std::max(layout.end, layout.begins[buffer] + bytes[buffer]);
  }
  return layout;
}

}  // namespace

PersistentBytes PlacePersistent(std::vector<Buffer>& buffers) {
  PersistentBytes ends;
  for (Buffer& buffer : buffers) {
    if (IsSaved(buffer.kind)) {
      continue;
    }
    int64_t& end = IsHost(buffer.kind) ? ends.host : ends.arena;
    buffer.address = RoundUp(end, buffer.alignment);
    end = RoundUp(buffer.address + ExtentOf(buffer), buffer.alignment);
  }
  return ends;
}

int64_t PlaceSaved(int64_t begin, std::vector<Buffer>& buffers) {
  int64_t end = begin;
  for (Buffer& buffer : buffers) {
    if (IsSaved(buffer.kind)) {
      buffer.address = RoundUp(end, buffer.alignment);
      end = RoundUp(buffer.address + ExtentOf(buffer), buffer.alignment);
    }
  }
  return end;
}

PersistentBytes PlaceLocals(const VectorClocks& clocks, PersistentBytes persistent, int64_t budget,
                            const std::vector<BufferId>& before, const Program* like, Program& program) {
  const LiveRanges lives(clocks, program);
  std::vector<int64_t> bytes(program.buffers.size(), 0);
  PersistentBytes ends = persistent;
  for (const bool on_host : {false, true}) {
    std::vector<BufferId> buffers;
    for (BufferId id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.life == Life::kLocal && IsHost(buffer.kind) == on_host) {
        TANDEM_CHECK(lives.first(id) >= 0, "every local is touched");
        bytes[id] = RingStride(buffer);
        buffers.push_back(id);
      }
    }
    int64_t& end = on_host ? ends.host : ends.arena;
    const int64_t base = end;
    std::optional<RegionLayout> layout;
    if (like != nullptr) {
      layout = LayoutAsIn(*like, base, buffers, bytes, program);
    }
    if (!layout || !MayShareAsIn(lives, buffers, bytes, *layout)) {
      // Pinned memory is little: any layout of it will do.
      const int64_t enough = on_host ? std::numeric_limits<int64_t>::max() : budget + budget / 50;
      layout = LayOutRegion(lives, buffers, bytes, before, enough);
    }
    for (const BufferId buffer : buffers) {
      program.buffers[buffer].address = base + layout->begins[buffer];
    }
    end = base + layout->end;
  }
  return ends;
}

}  // namespace tandem::schedules
