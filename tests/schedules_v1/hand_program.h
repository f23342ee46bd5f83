#pragma once

#include "schedules_v1/cost.h"
#include "schedules_v1/device_profile.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// A program small enough to time by hand, on 2 ranks: node a (4 us on HandProfile) of unit 0, node b (2 us)
// of unit 1, each gather 1 us.
//
//   0 gather   unshard layers.0                        0 ..  1
//   1 compute  forward layers.0.a        waits 0       1 ..  5
//   2 gather   unshard layers.1                        1 ..  2
//   3 compute  forward layers.1.b        waits 2       5 ..  7
//   4 gather   unshard layers.0          waits 3       7 ..  8
//   5 compute  forward layers.0.a        waits 4       8 .. 12
inline Outline HandOutline() {
  Outline outline;
  outline.units = {{.name = "layers.0", .parts = {"a"}, .elements = 500},
                   {.name = "layers.1", .parts = {"b"}, .elements = 500}};
  outline.nodes = {{.name = "layers.0.a", .layer = 0, .forward = {.parameters = {{0, 0}}, .flops = 4000}},
                   {.name = "layers.1.b", .layer = 1, .forward = {.parameters = {{1, 0}}, .flops = 2000}}};
  return outline;
}

inline Program HandProgram() {
  const auto unshard = [](UnitId unit, std::vector<int> waits) {
    return Instruction{.opcode = Opcode::kUnshard,
                       .target = unit,
                       .microbatch = 0,
                       .stream = StreamKind::kGather,
                       .communicator = Communicator::kGather,
                       .slots = {{.unit = unit, .size_class = 0, .index = unit}},
                       .waits = std::move(waits)};
  };
  const auto forward = [](NodeId node, std::vector<int> waits) {
    return Instruction{.opcode = Opcode::kForward,
                       .target = node,
                       .microbatch = 0,
                       .slots = {{.unit = node, .size_class = 0, .index = node}},
                       .waits = std::move(waits)};
  };
  return {.name = "train",
          .num_microbatches = 1,
          .parameter_slot_bytes = {2000},
          .parameter_slots = {2},
          .instructions = {unshard(0, {}), forward(0, {0}), unshard(1, {}), forward(1, {2}), unshard(0, {3}),
                           forward(0, {4})}};
}

inline Workload HandWorkload() { return {.compute = "fp32", .element_bytes = 4, .ranks = 2}; }

inline DeviceProfile HandProfile() {
  return {.name = "hand",
          .compute = {{"fp32", {.flops_per_second = 1e9}}},
          .memory_bytes_per_second = 1e9,
          .link = {.bytes_per_second = 1e9}};
}

}  // namespace tandem::schedules_v1
