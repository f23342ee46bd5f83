// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/simulate/cost.h"
#include "schedules/simulate/device_profile.h"

namespace tandem::schedules {

// A program small enough to time by hand, on 2 ranks: node a (4 us on HandProfile) of unit 0, node b (2 us)
// of unit 1, each gather 1 us.
//
//   0 gather   unshard layers.0                        0 ..  1
//   1 compute  forward layers.0.a        waits 0       1 ..  5
//   2 gather   unshard layers.1                        1 ..  2
//   3 compute  forward layers.1.b        waits 2       5 ..  7
//   4 gather   unshard layers.0          waits 3       7 ..  8
//   5 compute  forward layers.0.a        waits 4       8 .. 12
inline constexpr StreamId kCompute = 0;
inline constexpr StreamId kGather = 1;
inline constexpr StreamId kReduce = 2;
inline constexpr StreamId kToDevice = 3;

inline Outline HandOutline() {
  Outline outline;
  outline.units = {
      {.name = "layers.0", .layer = 0, .classes = {{.elements = 500}}, .parts = {{"a", 0, 500}}},
      {.name = "layers.1", .layer = 1, .classes = {{.elements = 500}}, .parts = {{"b", 0, 500}}}};
  outline.values = {{.name = "layers.0.a.hidden", .bytes = {600, 600}, .gradient_bytes = {600, 600}},
                    {.name = "tokens", .bytes = {80, 80}}};
  outline.nodes = {{.name = "layers.0.a",
                    .layer = 0,
                    .compute = "fp32",
                    .forward = {.writes = {0}, .parameters = {{0, 0}}, .flops = 4000}},
                   {.name = "layers.1.b",
                    .layer = 1,
                    .compute = "fp32",
                    .forward = {.reads = {0}, .parameters = {{1, 0}}, .flops = 2000}}};
  return outline;
}

// Buffers: 0, 1: the shards; 2, 3, 4: what each gather writes; 5: layers.0.a.hidden.
inline Program HandProgram() {
  const auto gathered = [](const char* name, UnitId unit) {
    return Buffer{.name = name, .kind = BufferKind::kGathered, .subject = unit, .bytes = {2000, 2000}};
  };
  const auto shard = [](const char* name, UnitId unit) {
    return Buffer{.name = name,
                  .kind = BufferKind::kWeights,
                  .subject = unit,
                  .life = Life::kPersistent,
                  .bytes = {1000, 1000}};
  };
  const auto unshard = [](UnitId unit, BufferId to, std::vector<Wait> waits) {
    return Instruction{.opcode = Opcode::kUnshard,
                       .target = unit,
                       .microbatch = 0,
                       .stream = kGather,
                       .communicator = 0,
                       .operands = {{.buffer = unit}, {.buffer = to, .mode = Mode::kWrites}},
                       .waits = std::move(waits)};
  };
  const auto forward = [](NodeId node, std::vector<Operand> operands, std::vector<Wait> waits) {
    return Instruction{.opcode = Opcode::kForward,
                       .target = node,
                       .microbatch = 0,
                       .stream = kCompute,
                       .operands = std::move(operands),
                       .waits = std::move(waits)};
  };
  const Operand writes_hidden{.buffer = 5, .mode = Mode::kWrites};
  return {.name = "train",
          .num_microbatches = 1,
          .streams = {{"compute"}, {"gather"}, {"reduce"}, {"host-to-device", true}},
          .communicators = {{"dp_cp_ag", "gather"}, {"dp_cp", "reduce"}},
          .buffers = {shard("layers.0 weights", 0),
                      shard("layers.1 weights", 1),
                      gathered("layers.0 parameters, gather 1", 0),
                      gathered("layers.1 parameters, gather 1", 1),
                      gathered("layers.0 parameters, gather 2", 0),
                      {.name = "layers.0.a.hidden mb 0",
                       .kind = BufferKind::kActivation,
                       .subject = 0,
                       .microbatch = 0,
                       .bytes = {600, 600}}},
          .instructions = {unshard(0, 2, {}), forward(0, {writes_hidden, {.buffer = 2}}, {{0}}),
                           unshard(1, 3, {}), forward(1, {{.buffer = 5}, {.buffer = 3}}, {{2}}),
                           unshard(0, 4, {{3}}), forward(0, {writes_hidden, {.buffer = 4}}, {{4}})}};
}

inline Workload HandWorkload(int ranks = 2) {
  return {.groups = {{"dp_cp", {ranks}}, {"dp_cp_ag", {ranks}}}};
}

inline DeviceProfile HandProfile() {
  return {.name = "hand",
          .compute = {{"fp32", {.flops_per_second = 1e9}}},
          .memory_bytes_per_second = 1e9,
          .link = {.bytes_per_second = 1e9}};
}

}  // namespace tandem::schedules
