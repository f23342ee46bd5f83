// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/machine.h"

#include <algorithm>
#include <utility>

#include "platform/check.h"
#include "tests/oracle/operand_table.h"

namespace tandem::oracle {

using schedules::Buffer;
using schedules::BufferId;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Life;
using schedules::Mode;
using schedules::Opcode;
using schedules::Operand;
using schedules::Program;

Machine::Machine(const schedules::Outline& outline, const schedules::BuildOptions& options,
                 const schedules::StagePrograms& stage)
    : outline_(outline), options_(options), ranks_(options) {
  for (int r = 0; r < ranks_.size(); ++r) {
    arena_.emplace_back(stage.arena_bytes, r);
    host_.emplace_back(stage.host_bytes, r);
  }
  for (BufferId b = 0; b < static_cast<int>(stage.begin.buffers.size()); ++b) {
    const Buffer& buffer = stage.begin.buffers[b];
    if (buffer.life == Life::kLocal) {
      continue;
    }
    for (int element = 0; element < (buffer.life == Life::kRing ? 2 : 1); ++element) {
      for (int r = 0; r < ranks_.size(); ++r) {
        Write(PlaceOf(stage.begin, {.buffer = b}, element), r,
              HashOf(Operation::kInitial,
                     {U(static_cast<int>(buffer.kind)), U(buffer.subject), U(element), U(r)}));
      }
    }
  }
}

Hash Machine::Read(const Place& place, int rank) {
  std::vector<Hash> parts;
  for (const auto& [begin, end] : place.ranges) {
    runs_.clear();
    MemoryOf(place, rank).Read(begin, end, runs_);
    if (runs_.size() == 1 && runs_[0].offset == 0 && runs_[0].total == end - begin) {
      parts.push_back(runs_[0].hash);
      continue;
    }
    Hash torn = HashOf(Operation::kTorn, {U(end - begin)});
    for (const Memory::Run& run : runs_) {
      torn = HashOf(Operation::kTorn, {torn, U(run.length), run.hash, U(run.offset), U(run.total)});
    }
    parts.push_back(torn);
  }
  return Join(parts);
}

void Machine::Write(const Place& place, int rank, Hash hash) {
  for (const auto& [begin, end] : place.ranges) {
    MemoryOf(place, rank)
        .Write(begin, end, place.divided ? Slice(begin - place.begin, end - begin, hash) : hash);
  }
}

void Machine::Set(const Program& program, const Operand& operand, int run, const std::vector<Hash>& hashes) {
  const Place place = PlaceOf(program, operand, run);
  for (int r = 0; r < ranks_.size(); ++r) {
    Write(place, r, hashes[r]);
  }
}

std::vector<Hash> Machine::Get(const Program& program, const Operand& operand, int run) {
  const Place place = PlaceOf(program, operand, run);
  std::vector<Hash> hashes;
  for (int r = 0; r < ranks_.size(); ++r) {
    hashes.push_back(Read(place, r));
  }
  return hashes;
}

std::vector<Hash> Machine::ReadSizes(const Program& program, const Instruction& instruction, int run) {
  std::vector<Hash> found;
  for (const Operand& operand : instruction.operands) {
    if (program.buffers[operand.buffer].kind == BufferKind::kSizes && operand.mode == Mode::kReads) {
      for (const Hash hash : Get(program, operand, run)) {
        found.push_back(hash);
      }
    }
  }
  return found;
}

void Machine::ForUnit(const Program& program, const Instruction& in, int run) {
  const auto& ops = in.operands;
  std::vector<std::vector<Hash>> held;  // operand x rank
  for (const Operand& operand : ops) {
    held.push_back(operand.mode == Mode::kWrites ? std::vector<Hash>() : Get(program, operand, run));
  }
  std::vector<Hash> made(ranks_.size());
  const auto for_ranks = [&](const auto& make) {
    for (int r = 0; r < ranks_.size(); ++r) {
      made[r] = make(r);
    }
    return made;
  };
  const auto garbage = [&](const Operand& operand) {
    Set(program, operand, run, for_ranks([&](int) { return HashOf(Operation::kGarbage, {++num_garbage_}); }));
  };
  const auto of_group = [&](const std::vector<Hash>& hashes, int r) {
    std::vector<Hash> result;
    for (const int other : ranks_.Of(outline_, program, in, r).ranks) {
      result.push_back(hashes[other]);
    }
    return result;
  };
  const uint64_t unit = U(in.target);
  switch (in.opcode) {
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      Set(program, ops[1], run,
          for_ranks([&](int r) { return HashOf(Operation::kGather, {unit}, of_group(held[0], r)); }));
      break;
    case Opcode::kZero:
      Set(program, ops[0], run, for_ranks([&](int) { return HashOf(Operation::kZero, {}); }));
      break;
    case Opcode::kRound:
      Set(program, ops[1], run, for_ranks([&](int r) { return HashOf(Operation::kRound, {held[0][r]}); }));
      break;
    case Opcode::kAccumulate:
      Set(program, ops[1], run, for_ranks([&](int r) {
            return ops[1].mode == Mode::kAdds ? HashOf(Operation::kAccumulate, {held[1][r], held[0][r]})
                                              : HashOf(Operation::kAccumulate, {held[0][r]});
          }));
      break;
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter: {
      const bool outer = in.opcode == Opcode::kReduceOuter;
      // Without staging nothing is received, whatever communicator a mutant has.
      const bool alone = program.buffers[ops[1].buffer].kind != BufferKind::kStaging;
      const size_t sum = outer ? 0 : alone ? 1 : 2;
      const bool adds = !outer && ops[sum].mode == Mode::kAdds;
      std::vector<Hash> sums = for_ranks([&](int r) {
        return HashOf(Operation::kFold,
                      {unit, adds ? held[sum][r] : 0, U(ranks_.Of(outline_, program, in, r).index)},
                      of_group(held[0], r));
      });
      if (!alone) {
        garbage(ops[1]);
      }
      Set(program, ops[sum], run, sums);
      if (program.buffers[ops.back().buffer].kind == BufferKind::kNormTerms) {
        Set(program, ops.back(), run, for_ranks([&](int r) {
              return HashOf(Operation::kNormTerms, {unit, sums[r]});
            }));
      }
      break;
    }
    case Opcode::kOptimizerStep: {
      std::vector<Hash> calls = for_ranks([&](int r) {
        std::vector<Hash> reads;
        for (const std::vector<Hash>& hashes : held) {
          if (!hashes.empty()) {
            reads.push_back(hashes[r]);
          }
        }
        return HashOf(Operation::kOptimizer, {unit}, reads);
      });
      for (const Operand& operand : ops) {
        const BufferKind kind = program.buffers[operand.buffer].kind;
        if (kind == BufferKind::kScratch) {
          garbage(operand);
        } else if (operand.mode != Mode::kReads) {
          Set(program, operand, run, for_ranks([&](int r) {
                return HashOf(Operation::kOutput, {calls[r], U(static_cast<int>(kind))});
              }));
        }
      }
      break;
    }
    default:
      TANDEM_CHECK(false, "every opcode of a unit does something");
  }
}

void Machine::Run(const Program& program, const Instruction& in, int run,
                  const std::vector<Hash>* sizes_read) {
  switch (in.opcode) {
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      Pass(program, in, run, sizes_read);
      break;
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
    case Opcode::kCopy:
    case Opcode::kReport:
    case Opcode::kSnapshot: {
      const size_t half = in.operands.size() / 2;
      for (size_t k = 0; k < half; ++k) {
        Set(program, in.operands[half + k], run, Get(program, in.operands[k], run));
      }
      break;
    }
    case Opcode::kSend:
    case Opcode::kReceive:
    case Opcode::kHostWait:
      break;
    case Opcode::kGradientNorm: {
      std::vector<Hash> reads;
      for (size_t k = 0; k + 1 < in.operands.size(); ++k) {
        const std::vector<Hash> hashes = Get(program, in.operands[k], run);
        reads.insert(reads.end(), hashes.begin(), hashes.end());
      }
      Set(program, in.operands.back(), run,
          std::vector<Hash>(ranks_.size(), HashOf(Operation::kNorm, {in.communicator < 0 ? 1U : 0U}, reads)));
      break;
    }
    case Opcode::kUpdateStates:
      UpdateStates(program, in, run);
      break;
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
    case Opcode::kZero:
    case Opcode::kRound:
    case Opcode::kAccumulate:
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter:
    case Opcode::kOptimizerStep:
      ForUnit(program, in, run);
      break;
  }
}

void Machine::UpdateStates(const Program& program, const Instruction& in, int run) {
  const std::vector<Hash> outcome = Get(program, in.operands.front(), run);
  const auto for_ranks = [&](const auto& make) {
    std::vector<Hash> made;
    for (int r = 0; r < ranks_.size(); ++r) {
      made.push_back(make(r));
    }
    return made;
  };
  // All that it reads, before anything that it writes: two of them may share memory in a mutant.
  std::vector<std::pair<Operand, std::vector<Hash>>> writes;
  const std::vector<Operand> counters = Named(program, in, "counter");
  const std::vector<Operand> states = Named(program, in, "state");
  for (size_t k = 0; k < std::min(counters.size(), states.size()); ++k) {
    const Operand& state = states[k];
    const std::vector<Hash> counted = Get(program, counters[k], run);
    const std::vector<Hash> held = Get(program, state, run);
    const uint64_t subject = U(program.buffers[state.buffer].subject);
    writes.emplace_back(state, for_ranks([&](int r) {
                          const std::vector<Hash> alone = {counted[r]};
                          return HashOf(Operation::kUpdated, {subject, held[r], outcome[r]},
                                        in.communicator < 0 ? alone : counted);
                        }));
    writes.emplace_back(counters[k], for_ranks([](int) { return HashOf(Operation::kZero, {}); }));
  }
  writes.emplace_back(in.operands.back(),
                      for_ranks([&](int) { return HashOf(Operation::kGarbage, {++num_garbage_}); }));
  for (const auto& [operand, hashes] : writes) {
    Set(program, operand, run, hashes);
  }
}

void Machine::HostWrites(const Program& program, int run) {
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.kind == BufferKind::kHostInputs || buffer.kind == BufferKind::kHostBatch) {
      std::vector<Hash> given;
      for (int r = 0; r < ranks_.size(); ++r) {
        given.push_back(HashOf(Operation::kGivenByHost,
                               {U(run), U(static_cast<int>(buffer.kind)), U(buffer.subject), U(r)}));
      }
      Set(program, {.buffer = b}, run, given);
    }
  }
}

void Machine::HostReads(const Program& program, int run) {
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.kind == BufferKind::kHostLosses || buffer.kind == BufferKind::kHostUpdateNorms ||
        buffer.kind == BufferKind::kHostOutcome) {
      observations_["the host reads " + buffer.name + " of run " + std::to_string(run)] =
          Get(program, {.buffer = b}, run);
    }
  }
}

Observations Machine::Observe(const Program& program) {
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.life == Life::kLocal) {
      break;
    }
    for (int element = 0; element < (buffer.life == Life::kRing ? 2 : 1); ++element) {
      observations_["in the end " + buffer.name + " " + std::to_string(element)] =
          Get(program, {.buffer = b}, element);
    }
  }
  return observations_;
}

}  // namespace tandem::oracle
