// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/place.h"

namespace tandem::oracle {

using schedules::Buffer;
using schedules::BufferKind;
using schedules::Life;

namespace {

// Where the element of a ring begins that a run's operand means.
int64_t ElementBegin(const Buffer& buffer, int run, bool former) {
  const int64_t stride = (buffer.bytes.bound + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
  const int element = buffer.life == Life::kRing ? (run + (former ? 1 : 0)) % 2 : 0;
  return buffer.address + element * stride;
}

bool OnHost(BufferKind kind) {
  return kind == BufferKind::kHostInputs || kind == BufferKind::kHostBatch ||
         kind == BufferKind::kHostLosses || kind == BufferKind::kHostUpdateNorms ||
         kind == BufferKind::kHostOutcome || kind == BufferKind::kSizes || kind == BufferKind::kHostWeights ||
         kind == BufferKind::kHostOptimizerState || kind == BufferKind::kHostNodeState;
}

}  // namespace

Place PlaceOf(const schedules::Program& program, const schedules::Operand& operand, int run) {
  const Buffer& buffer = program.buffers[operand.buffer];
  Place place{.begin = ElementBegin(buffer, run, operand.former), .host = OnHost(buffer.kind)};
  if (operand.part >= 0) {
    place.ranges.emplace_back(place.begin + buffer.parts[operand.part].begin,
                              place.begin + buffer.parts[operand.part].end);
  } else if (buffer.parts.empty()) {
    place.ranges.emplace_back(place.begin, place.begin + buffer.bytes.bound);
  } else {
    place.divided = buffer.parts.size() > 1;
    for (const schedules::BufferPart& part : buffer.parts) {
      place.ranges.emplace_back(place.begin + part.begin, place.begin + part.end);
    }
  }
  return place;
}

int RunOfRings(const schedules::Instruction& instruction, int run) {
  return instruction.segment >= 0 ? 0 : run;
}

}  // namespace tandem::oracle
