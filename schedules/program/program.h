// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/buffer_kind.h"
#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// What one rank does in one run, as data. The same on every rank of a stage.

using BufferId = int;
using StreamId = int;
using CommunicatorId = int;

// Bytes [begin, end) of a buffer. Accesses to different parts do not conflict.
struct BufferPart {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const BufferPart&) const = default;
};

// Memory with a name and one purpose.
struct Buffer {
  std::string name;  // "layers.3 parameters, gather 2"; unique in its program
  BufferKind kind = BufferKind::kActivation;
  int subject = -1;
  int microbatch = -1;  // -1: not of one microbatch
  Life life = Life::kLocal;
  Bytes bytes;  // of one element of a ring
  int64_t alignment = 256;
  std::vector<BufferPart> parts;  // ascending, disjoint; empty: the buffer has none
  // Byte offset in the arena (host kinds: in the pinned region); element e of a ring at
  // address + e * RingStride. -1: not assigned yet.
  int64_t address = -1;
  bool operator==(const Buffer&) const = default;
};

int64_t RingStride(const Buffer& buffer);  // bound, rounded up to the alignment
int64_t ExtentOf(const Buffer& buffer);    // bytes from address on: the bound, or both elements of a ring

enum class Mode : uint8_t {
  kReads,
  kWrites,  // overwrites all of it
  kAdds,    // reads and writes; the order of adds matters
};

struct Operand {
  BufferId buffer = -1;
  int part = -1;  // -1: all parts
  Mode mode = Mode::kReads;
  bool former = false;  // of a ring: the former run's element
  bool operator==(const Operand&) const = default;
};

// An earlier instruction of another stream that must have finished.
struct Wait {
  int instruction = -1;
  int64_t frees = 0;  // > 0: the wait is only for memory; it frees this many bytes
  bool operator==(const Wait&) const = default;
};

// Operands are complete: an instruction accesses nothing else. The trainer binds tensors by their order:
//   passes of nodes (ListOperands): the lists of Access in their order of declaration (reads, writes,
//     gradient_reads, gradient_writes, parameters, parameter_gradients, state_reads, state_adds,
//     state_carries), then inputs, then scratch. If several passes write a gradient or carry a state, the
//     first has mode kWrites and later ones kAdds. Recompute: as the forward, without the writes that were
//     kept, state_adds and state_carries. Forward in `validate`: without gradient_writes,
//     parameter_gradients, state_adds and state_carries.
//   LoadInputs: reads host inputs, writes inputs.
//   LoadBatch: reads a part of the host batch, writes that part.
//   Send: reads the value or gradient.
//   Receive: writes it.
//   HostWait: reads the sizes. Its stream "host" is the issuing thread, so every instruction issued after it
//     knows that it has ended.
//   Unshard: reads the shard (published, main where equal, or outer-gathered), writes gathered. A rank that
//     is alone on the axis has no Unshard: nodes read the shard.
//   UnshardOuter: reads the shard, writes outer-gathered.
//   Zero: writes a part of the contribution.
//   Round: reads a part of collected, writes that of the contribution.
//   Accumulate: reads the contribution, writes or adds the full gradient.
//   ReduceGradients: reads the contribution or the full gradient, writes staging (unless the rank is alone on
//     the axis), writes or adds gradients, and, if it is the run's last of its unit (and no outer stage
//     follows), writes norm terms.
//   ReduceOuter: adds gradients, writes staging, writes norm terms.
//   GradientNorm: reads norm terms of every trainable unit, reads inputs, writes outcome.
//   OptimizerStep: reads gradients, reads outcome (former), reads inputs, adds weights, adds optimizer state,
//     writes published (where it exists), writes update norms (if wanted), writes scratch (where it needs
//     some).
//   UpdateStates: reads outcome (former); for every state that has a counter: adds the counter, adds the
//     state; writes scratch, which is as large as the counters of all ranks.
//   Report: all reads, then the host buffers that they are copied to.
struct Instruction {
  Opcode opcode = Opcode::kForward;
  int target = -1;
  int microbatch = -1;  // -1: not of one microbatch
  StreamId stream = -1;
  CommunicatorId communicator = -1;  // -1: none
  std::vector<Operand> operands;
  std::vector<Wait> waits;
  bool operator==(const Instruction&) const = default;
};

struct Stream {
  // "compute", "weights", "gather", "reduce", "outer", "host-to-device", "device-to-host", "host",
  // "dispatch", "sizes", "balance"
  std::string name;
  // It copies to or from the host. A run does not wait for the former run's copies, which touch only rings.
  bool copies_host = false;
  bool operator==(const Stream&) const = default;
};

// A process group and a purpose; used from one stream.
struct CommunicatorUse {
  std::string group;    // "dp_cp"
  std::string purpose;  // "gather", "reduce", "norm", "dispatch", "sizes", "balance"
  bool window = false;  // its collectives need the arena to be registered (a window)
  bool operator==(const CommunicatorUse&) const = default;
};

// Instructions in the order in which the host issues them; every wait points to a lower position. On the
// device, a run starts after all streams of the former run except those that copy to and from the host.
struct Program {
  std::string name;  // "train", "begin", "update", "validate"
  int num_microbatches = 0;
  std::vector<Stream> streams;
  std::vector<CommunicatorUse> communicators;
  std::vector<Buffer> buffers;  // persistent ones and rings first: the same list in every program of a stage
  std::vector<Instruction> instructions;
  bool operator==(const Program&) const = default;
};

// The programs of one stage of a job. They share one address map: persistent buffers and rings first, at
// equal addresses in every program, and the locals of each program above them.
struct StagePrograms {
  Program train;  // optimizer steps on the former run's gradients, then the next step's passes up to the norm
  Program begin;  // train without the update: the first step, and after every `update`
  Program update;                // only the optimizer steps and a report: before a validation, save or stop
  Program validate;              // no instructions where the job never validates
  int64_t persistent_bytes = 0;  // where the locals begin
  int64_t arena_bytes = 0;       // the end of the largest program's
  int64_t host_bytes = 0;        // of the pinned region

  std::vector<const Program*> All() const;  // those that have instructions
};

}  // namespace tandem::schedules
