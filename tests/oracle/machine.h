#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "tests/oracle/hashes.h"
#include "tests/oracle/memory.h"

namespace tandem::oracle {

// What can be seen of a sequence of runs, per rank: persistent buffers and rings in the end, what the host
// read of every run, what went to other stages. Named, for messages.
using Observations = std::map<std::string, std::vector<Hash>>;

// The ranks of one stage: the data parallel ones, over which units are sharded and experts exchange tokens.
class Ranks {
 public:
  explicit Ranks(const schedules::BuildOptions& options);

  int size() const { return size_; }
  // Who shares a unit's shards (axis 0), or holds the same shard (axis 1).
  Group Of(schedules::UnitGroup group, int axis, int rank) const;

 private:
  schedules::MeshAxes dense_;
  schedules::MeshAxes expert_;
  int size_;
};

// The memory of all ranks of a stage, and what instructions do to it. An instruction happens on all ranks at
// once: they run one text, and an order in which one of them goes wrong is wrong on all of them.
class Machine {
 public:
  Machine(const schedules::Outline& outline, const schedules::BuildOptions& options,
          const schedules::StagePrograms& stage);

  // Run `run`'s instruction of a program.
  void Run(const schedules::Program& program, const schedules::Instruction& instruction, int run,
           const std::vector<Hash>* sizes_read = nullptr);
  // What the issuing thread finds in the sizes that an instruction reads: per operand and rank.
  std::vector<Hash> ReadSizes(const schedules::Program& program, const schedules::Instruction& instruction,
                              int run);

  // Before run `run` is issued the host writes its inputs and batches; after its end it reads what was
  // reported.
  void HostWrites(const schedules::Program& program, int run);
  void HostReads(const schedules::Program& program, int run);

  // After the last run.
  Observations Observe(const schedules::Program& program);

 private:
  struct Place {
    std::vector<std::pair<int64_t, int64_t>> ranges;  // of bytes: of every part, or of one
    int64_t begin = 0;                                // of the buffer's element
    bool host = false;
    bool divided = false;  // several parts at once
  };

  Place PlaceOf(const schedules::Program& program, const schedules::Operand& operand, int run) const;
  Memory& MemoryOf(const Place& place, int rank) { return (place.host ? host_ : arena_)[rank]; }
  Hash Read(const Place& place, int rank);
  void Write(const Place& place, int rank, Hash hash);
  void Pass(const schedules::Program& program, const schedules::Instruction& instruction, int run,
            const std::vector<Hash>* sizes_read);
  void ForUnit(const schedules::Program& program, const schedules::Instruction& instruction, int run);
  void Set(const schedules::Program& program, const schedules::Operand& operand, int run,
           const std::vector<Hash>& hashes);
  std::vector<Hash> Get(const schedules::Program& program, const schedules::Operand& operand, int run);
  Group GroupOf(const schedules::Program& program, const schedules::Instruction& instruction, int rank) const;

  const schedules::Outline& outline_;
  const schedules::BuildOptions& options_;
  const Ranks ranks_;
  std::vector<Memory> arena_;  // per rank
  std::vector<Memory> host_;
  Observations observations_;
  std::vector<Memory::Run> runs_;
  uint64_t num_garbage_ = 0;
};

// The byte ranges that an operand touches, for conflicts: [begin, end) in the arena or the pinned region.
struct Touched {
  int64_t begin = 0;
  int64_t end = 0;
  bool host = false;
  bool write = false;
};
void AppendTouched(const schedules::Program& program, const schedules::Operand& operand, int run,
                   std::vector<Touched>& touched);

}  // namespace tandem::oracle
