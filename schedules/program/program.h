// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/buffer_kind.h"
#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// What one rank does in one run, as data. All ranks of a stage have the same program. Words that all of
// schedules/ uses:
//
// * A run is one execution of a program on a rank. The former run is the one before it.
// * A local is a buffer that lives within one run. A ring is a persistent buffer with two elements, which
//   runs use in turn: this run's element, and the former run's.
// * A rank holds a shard of each unit. A gather (Unshard) puts the unit together for the nodes that read it.
//   A span (passes/spans.h) is all uses of a unit that one gather serves.
// * A contribution is a unit's gradient from one microbatch on one rank. The accumulator
//   (BufferKind::kGradients) is the persistent buffer to which reductions add the contributions of all ranks.
// * An instruction knows those that have certainly finished when it starts (vector_clock.h).
// * A memory wait is one that no operand requires. It keeps the bytes of locals within the budget.

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
  int microbatch = -1;  // -1 if it does not belong to one microbatch
  Life life = Life::kLocal;
  Bytes bytes;  // size of one element if it is a ring
  int64_t alignment = 256;
  std::vector<BufferPart> parts;  // ascending and disjoint; empty if the buffer has none
  // Byte offset in the arena (for host kinds, in the pinned region). Element e of a ring is at address + e *
  // RingStride. -1: not assigned yet.
  int64_t address = -1;
  bool operator==(const Buffer&) const = default;
};

int64_t RingStride(const Buffer& buffer);  // the bound, rounded up to the alignment
// The bytes that the buffer occupies from its address on: the bound, or both elements of a ring.
int64_t ExtentOf(const Buffer& buffer);

enum class Mode : uint8_t {
  kReads,
  kWrites,  // overwrites all of it
  kAdds,    // reads and writes; the order of adds matters
};

// The role of an operand in its instruction. The signature of an opcode (signature.h) says which roles it
// has.
enum class Role : uint8_t {
  // Of passes of nodes. kValue and kGradient are also of sends and receives, kValue of host waits.
  kValue,
  kGradient,  // of a value
  kParameters,
  kParameterGradient,
  kState,
  kCarriedState,
  kInputs,
  kScratch,
  // Of copies between host and device, and between rings and locals (Opcode::kCopy).
  kSource,
  kCopy,
  // Of units.
  kShard,         // what a gather reads: published or main weights, or what the outer group gathered
  kGathered,      // what a gather writes
  kContribution,  // gradients of one microbatch
  kCollected,
  kSum,      // the full gradient: this rank's contributions of the whole run, added up
  kStaging,  // receives the pieces of other ranks
  kReduced,  // the accumulator: gradients over all ranks
  kNormTerms,
  kOutcome,
  kWeights,
  kOptimizerState,
  kPublished,
  kUpdateNorms,
  kCounter,
};
inline constexpr int kNumRoles = static_cast<int>(Role::kCounter) + 1;

struct Operand {
  BufferId buffer = -1;
  int part = -1;  // -1: all parts
  Mode mode = Mode::kReads;
  bool former = false;  // for a ring: the former run's element
  Role role = Role::kValue;
  bool operator==(const Operand&) const = default;
};

// A wait for an earlier instruction of another stream to finish.
struct Wait {
  int instruction = -1;
  int64_t frees = 0;  // if > 0, this is a memory wait, which frees so many bytes of locals
  bool operator==(const Wait&) const = default;
};

// Operands are complete: an instruction accesses nothing else. Their roles and order are those of the
// opcode's signature (signature.h), and for a pass of a node those of its declaration (ListOperands). If
// several passes write a gradient or carry a state, the first has mode kWrites and later ones kAdds. A
// Recompute has no operands for values that were kept. A Recompute, and a Forward in `validate`, have none
// for what only training writes. A HostWait is on the stream "host", which stands for the issuing thread, so
// every instruction issued after it knows that it has ended. If GathersInner (build_options.h) is false for a
// unit, it has no Unshard, and nodes read the shard. The scratch of UpdateStates is as large as the counters
// of all ranks.
struct Instruction {
  Opcode opcode = Opcode::kForward;
  int target = -1;
  int microbatch = -1;  // -1 if it does not belong to one microbatch
  StreamId stream = -1;
  CommunicatorId communicator = -1;  // -1 if it has none
  std::vector<Operand> operands;
  std::vector<Wait> waits;
  // Instructions with the same number are consecutive, and a captured graph replays them together
  // (passes/segments.h): only the first of them waits, and only the last is waited for. -1: not replayed.
  int segment = -1;
  bool operator==(const Instruction&) const = default;
};

struct Stream {
  // "compute", "weights", "gather", "reduce", "outer", "host-to-device", "device-to-host", "save", "host",
  // "dispatch", "sizes", "balance", "send", "receive", "send gradients", "receive gradients"
  std::string name;
  // If true, the stream copies to or from the host, and a run does not wait for the former run's copies,
  // which touch only rings. It is false for "save", whose copies are of weights, which the next run changes.
  bool copies_host = false;
  bool operator==(const Stream&) const = default;
};

// A communicator: a process group and a purpose. Only one stream uses it.
struct CommunicatorUse {
  std::string group;  // "dp_cp"; of a link from stage 0 to stage 1, "pp/0-1/values" or "pp/0-1/gradients"
  std::string
      purpose;  // "gather", "reduce", "norm", "counts", "dispatch", "sizes", "balance", "values", "gradients"
  bool window = false;  // its collectives need a registered arena (a window)
  bool operator==(const CommunicatorUse&) const = default;
};

// Instructions in the order in which the host issues them. Every wait points to a lower position. On the
// device, a run starts after all streams of the former run except those that copy to and from the host.
struct Program {
  std::string name;  // "train", "begin", "update", "validate", "train_save"
  int num_microbatches = 0;
  std::vector<Stream> streams;
  std::vector<CommunicatorUse> communicators;
  // Persistent buffers and rings come first. They are the same in every program of a stage.
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  bool operator==(const Program&) const = default;
};

// One past the last instruction of the segment that contains instruction i; i + 1 if it is in none.
int SegmentEnd(const Program& program, int i);

// The programs of one stage of a job. They share one address map: persistent buffers and rings come first, at
// equal addresses in every program, and the locals of each program follow.
struct StagePrograms {
  Program train;  // optimizer steps on the former run's gradients, then the next step's passes up to the norm
  Program begin;  // train without the update: the first step, and after every `update`
  Program update;    // only the optimizer steps and a report: before a validation, save or stop
  Program validate;  // without instructions if the job never validates
  // train with Snapshots behind the optimizer steps. When such a run ends, the host has a copy of the
  // weights, optimizer state and node states that the run has updated. The copy stays until train_save runs
  // again. Without instructions if the job saves no checkpoints.
  Program train_save;
  int64_t persistent_bytes = 0;  // where the locals begin
  int64_t arena_bytes = 0;       // where the locals of the largest program end
  int64_t host_bytes = 0;        // size of the pinned region
  int64_t saved_at = 0;          // Snapshots write from here to the end of the pinned region

  std::vector<const Program*> All() const;  // the programs that have instructions
};

}  // namespace tandem::schedules
