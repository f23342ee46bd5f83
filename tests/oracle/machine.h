// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "tests/oracle/hashes.h"
#include "tests/oracle/memory.h"
#include "tests/oracle/place.h"
#include "tests/oracle/ranks.h"

namespace tandem::oracle {

// What a sequence of runs leaves to observe, by name and rank: the final content of persistent buffers and
// rings, and what the host read of every run.
using Observations = std::map<std::string, std::vector<Hash>>;

// The memory of all ranks of a stage, and what instructions do to it. An instruction runs on all ranks at
// once, because they run the same text, and an order that goes wrong on one rank is a wrong order for all.
class Machine {
 public:
  Machine(const schedules::Outline& outline, const schedules::BuildOptions& options,
          const schedules::StagePrograms& stage);

  // Executes an instruction of a program, as part of run `run`.
  void Run(const schedules::Program& program, const schedules::Instruction& instruction, int run,
           const std::vector<Hash>* sizes_read = nullptr);
  // Reads the sizes that an instruction reads, as the issuing thread does: per operand and rank.
  std::vector<Hash> ReadSizes(const schedules::Program& program, const schedules::Instruction& instruction,
                              int run);

  // Before run `run` is issued, the host writes its inputs and batches; after the end of the run, it reads
  // what was reported.
  void HostWrites(const schedules::Program& program, int run);
  void HostReads(const schedules::Program& program, int run);

  // To be called after the last run.
  Observations Observe(const schedules::Program& program);

 private:
  Memory& MemoryOf(const Place& place, int rank) { return (place.host ? host_ : arena_)[rank]; }
  Hash Read(const Place& place, int rank);
  void Write(const Place& place, int rank, Hash hash);
  // machine_pass.cc
  void Pass(const schedules::Program& program, const schedules::Instruction& instruction, int run,
            const std::vector<Hash>* sizes_read);
  void ForUnit(const schedules::Program& program, const schedules::Instruction& instruction, int run);
  void UpdateStates(const schedules::Program& program, const schedules::Instruction& instruction, int run);
  void Set(const schedules::Program& program, const schedules::Operand& operand, int run,
           const std::vector<Hash>& hashes);
  std::vector<Hash> Get(const schedules::Program& program, const schedules::Operand& operand, int run);

  const schedules::Outline& outline_;
  const schedules::BuildOptions& options_;
  const Ranks ranks_;
  std::vector<Memory> arena_;  // per rank
  std::vector<Memory> host_;
  Observations observations_;
  std::vector<Memory::Run> runs_;
  uint64_t num_garbage_ = 0;
};

}  // namespace tandem::oracle
