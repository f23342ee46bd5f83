// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/memory_curve.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

// A buffer that comes into use or goes out of it.
struct Change {
  int64_t ns;
  int64_t bytes;  // < 0: it goes
  BufferKind kind;
};

// Per buffer: when its first access starts and its last ends; {0, 0} of one without accesses.
std::vector<Interval> Uses(const Program& program, const Timeline& timeline) {
  std::vector<Interval> uses(program.buffers.size());
  std::vector<bool> used(program.buffers.size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const InstructionTime& time = timeline.instructions[i];
    for (const Operand& operand : program.instructions[i].operands) {
      Interval& use = uses[operand.buffer];
      if (!used[operand.buffer]) {
        used[operand.buffer] = true;
        use = {time.start_ns, time.end_ns};
      }
      use = {std::min(use.first, time.start_ns), std::max(use.second, time.end_ns)};
    }
  }
  return uses;
}

}  // namespace

int64_t Total(const BytesByKind& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

MemoryCurve MemoryOverTime(const Program& program, const Timeline& timeline) {
  TANDEM_CHECK(timeline.instructions.size() == program.instructions.size(),
               "a timeline has a time for every instruction of its program");
  MemoryCurve curve;
  const std::vector<Interval> uses = Uses(program, timeline);
  std::vector<Change> changes;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (IsHost(buffer.kind)) {
      continue;
    }
    if (buffer.life != Life::kLocal) {
      curve.persistent[static_cast<int>(buffer.kind)] +=
          (buffer.life == Life::kRing ? 2 : 1) * buffer.bytes.bound;
    } else if (uses[b].first < uses[b].second && buffer.bytes.bound > 0) {
      changes.push_back({uses[b].first, buffer.bytes.bound, buffer.kind});
      changes.push_back({uses[b].second, -buffer.bytes.bound, buffer.kind});
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.ns < b.ns; });
  MemoryPoint now;
  for (size_t i = 0; i < changes.size(); ++i) {
    now.ns = changes[i].ns;
    now.locals[static_cast<int>(changes[i].kind)] += changes[i].bytes;
    if (i + 1 < changes.size() && changes[i + 1].ns == now.ns) {
      continue;  // what ends as another begins makes room for it
    }
    curve.points.push_back(now);
    if (const int64_t bytes = Total(now.locals); bytes > curve.peak_bytes) {
      curve.peak = static_cast<int>(curve.points.size()) - 1;
      curve.peak_bytes = bytes;
    }
  }
  return curve;
}

}  // namespace tandem::schedules
