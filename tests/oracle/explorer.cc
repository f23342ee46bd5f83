// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/explorer.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tandem::oracle {

using schedules::BufferKind;
using schedules::Instruction;
using schedules::Mode;
using schedules::Opcode;
using schedules::Program;

Explorer::Explorer(const schedules::Outline& outline, const schedules::BuildOptions& options,
                   const schedules::StagePrograms& stage, std::vector<const Program*> runs)
    : outline_(outline), options_(options), stage_(stage), runs_(std::move(runs)) {
  Build();
}

int Explorer::Add(const Item& item, const Bits& before) {
  items_.push_back(item);
  before_.push_back(before);
  return static_cast<int>(items_.size()) - 1;
}

void Explorer::Build() {
  size_t count = 0;
  for (const Program* program : runs_) {
    count += 2 * program->instructions.size() + 2;
  }
  words_ = count / 64 + 1;
  const auto include = [&](Bits& bits, int item) {
    for (size_t w = 0; w < words_; ++w) {
      bits[w] |= before_[item][w];
    }
    bits[item / 64] |= uint64_t{1} << (item % 64);
  };
  Bits host(words_, 0);                // what the issuing thread has seen end
  Bits former(words_, 0);              // the former run's streams that do not copy
  std::map<std::string, Bits> copies;  // of the former runs, by copy stream
  std::vector<Bits> whole_runs;
  std::vector<int> host_reads;
  for (int run = 0; run < static_cast<int>(runs_.size()); ++run) {
    const Program& program = *runs_[run];
    if (run >= 2) {
      include(host, host_reads[run - 2]);
    }
    const int writes = Add({Kind::kHostWrites, run}, host);
    include(host, writes);
    std::vector<Bits> streams;
    for (const schedules::Stream& stream : program.streams) {
      streams.push_back(stream.copies_host ? copies.try_emplace(stream.name, words_, 0).first->second
                                           : former);
    }
    std::vector<int> item_of;
    Bits all = host;
    Bits device(words_, 0);
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& in = program.instructions[i];
      int sizes = -1;
      if (in.opcode != Opcode::kHostWait &&
          std::any_of(in.operands.begin(), in.operands.end(), [&](const schedules::Operand& operand) {
            return program.buffers[operand.buffer].kind == BufferKind::kSizes && operand.mode == Mode::kReads;
          })) {
        sizes = Add({Kind::kSizes, run, i}, host);
        include(host, sizes);
      }
      Bits before = streams[in.stream];
      for (size_t w = 0; w < words_; ++w) {
        before[w] |= host[w];
      }
      // A segment starts as a whole, when its first instruction may.
      const bool started = i > 0 && in.segment >= 0 && program.instructions[i - 1].segment == in.segment;
      for (const schedules::Wait& wait : in.waits) {
        if (!started) {
          include(before, item_of[wait.instruction]);
        }
      }
      const int item = Add({Kind::kInstruction, run, i, sizes}, before);
      item_of.push_back(item);
      include(streams[in.stream], item);
      include(all, item);
      if (in.opcode == Opcode::kHostWait) {
        include(host, item);
      }
      if (program.streams[in.stream].copies_host) {
        include(copies[program.streams[in.stream].name], item);
      } else {
        include(device, item);
      }
    }
    former = device;
    for (size_t w = 0; w < words_; ++w) {
      former[w] |= host[w];
    }
    host_reads.push_back(-1);
    whole_runs.push_back(all);
    // The host reads run n after its end, while run n + 1 is in flight or before it is issued.
    if (run >= 1) {
      host_reads[run - 1] = Add({Kind::kHostReads, run - 1}, whole_runs[run - 1]);
    }
  }
  Add({Kind::kHostReads, static_cast<int>(runs_.size()) - 1}, whole_runs.back());
}

std::vector<std::pair<int, int>> Explorer::Conflicts() const {
  struct Access {
    bool host = false;
    int64_t begin = 0;
    int64_t end = 0;
    bool write = false;
    int item = -1;
  };
  std::vector<Access> accesses;
  for (int item = 0; item < static_cast<int>(items_.size()); ++item) {
    const Program& program = *runs_[items_[item].run];
    const Kind kind = items_[item].kind;
    const auto touch = [&](const schedules::Operand& operand) {
      const int i = items_[item].instruction;
      const int run = i < 0 ? items_[item].run : RunOfRings(program.instructions[i], items_[item].run);
      const Place place = PlaceOf(program, operand, run);
      for (const auto& [begin, end] : place.ranges) {
        accesses.push_back({place.host, begin, end, operand.mode != Mode::kReads, item});
      }
    };
    if (kind == Kind::kHostWrites || kind == Kind::kHostReads) {
      for (schedules::BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
        const BufferKind buffer = program.buffers[b].kind;
        const bool given = buffer == BufferKind::kHostInputs || buffer == BufferKind::kHostBatch;
        const bool reported = buffer == BufferKind::kHostLosses || buffer == BufferKind::kHostUpdateNorms ||
                              buffer == BufferKind::kHostOutcome;
        if (kind == Kind::kHostWrites ? given : reported) {
          touch({.buffer = b, .mode = given ? Mode::kWrites : Mode::kReads});
        }
      }
      continue;
    }
    const Instruction& in = program.instructions[items_[item].instruction];
    for (const schedules::Operand& operand : in.operands) {
      const bool sizes = program.buffers[operand.buffer].kind == BufferKind::kSizes &&
                         operand.mode == Mode::kReads && in.opcode != Opcode::kHostWait;
      if (sizes == (kind == Kind::kSizes)) {
        touch(operand);
      }
    }
  }
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::tuple(a.host, a.begin, a.item) < std::tuple(b.host, b.begin, b.item);
  });
  std::vector<std::pair<int, int>> conflicts;
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& one = accesses[i];
    for (size_t k = i + 1; k < accesses.size() && accesses[k].host == one.host && accesses[k].begin < one.end;
         ++k) {
      const int a = std::min(one.item, accesses[k].item);
      const int b = std::max(one.item, accesses[k].item);
      if (a != b && (one.write || accesses[k].write) && !IsBefore(a, b)) {
        conflicts.emplace_back(a, b);
      }
    }
  }
  std::sort(conflicts.begin(), conflicts.end());
  conflicts.erase(std::unique(conflicts.begin(), conflicts.end()), conflicts.end());
  return conflicts;
}

Observations Explorer::Run(const std::vector<int>& order) const {
  Machine machine(outline_, options_, stage_);
  std::map<int, std::vector<Hash>> sizes;
  for (const int i : order) {
    const Item& item = items_[i];
    const Program& program = *runs_[item.run];
    switch (item.kind) {
      case Kind::kHostWrites:
        machine.HostWrites(program, item.run);
        break;
      case Kind::kHostReads:
        machine.HostReads(program, item.run);
        break;
      case Kind::kSizes:
        sizes[i] = machine.ReadSizes(program, program.instructions[item.instruction], item.run);
        break;
      case Kind::kInstruction:
        machine.Run(program, program.instructions[item.instruction],
                    RunOfRings(program.instructions[item.instruction], item.run),
                    item.sizes < 0 ? nullptr : &sizes[item.sizes]);
    }
  }
  return machine.Observe(*runs_.back());
}

void Explorer::AppendUpTo(int item, std::vector<bool>& done, std::vector<int>& order) const {
  for (int before = 0; before < item; ++before) {
    if (!done[before] && IsBefore(before, item)) {
      done[before] = true;
      order.push_back(before);
    }
  }
  if (!done[item]) {
    done[item] = true;
    order.push_back(item);
  }
}

Observations Explorer::RunInIssueOrder() const {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    order.push_back(i);
  }
  return Run(order);
}

std::optional<std::string> Explorer::FindHarm(const Observations& expected, int max_pairs,
                                              std::mt19937_64& random) const {
  if (const auto harm = FirstDifference(expected, RunInIssueOrder())) {
    return "in issue order, " + *harm;
  }
  std::vector<std::pair<int, int>> conflicts = Conflicts();
  std::shuffle(conflicts.begin(), conflicts.end(), random);
  const auto text = [&](int item) {
    return "item " + std::to_string(item) + " (run " + std::to_string(items_[item].run) + ", instruction " +
           std::to_string(items_[item].instruction) + ")";
  };
  const auto finish = [&](std::vector<bool>& done, std::vector<int>& order) {
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
      AppendUpTo(i, done, order);
    }
  };
  for (int k = 0; k < std::min(max_pairs, static_cast<int>(conflicts.size())); ++k) {
    const auto& [a, b] = conflicts[k];
    std::vector<bool> done(items_.size(), false);
    std::vector<int> order;
    AppendUpTo(b, done, order);
    finish(done, order);
    if (const auto harm = FirstDifference(expected, Run(order))) {
      return text(b) + " before " + text(a) + ": " + *harm;
    }
    done.assign(items_.size(), false);
    order.clear();
    for (int jumps = 0; jumps < 8; ++jumps) {
      AppendUpTo(static_cast<int>(random() % items_.size()), done, order);
    }
    finish(done, order);
    if (const auto harm = FirstDifference(expected, Run(order))) {
      return "in a random order, " + *harm;
    }
  }
  return std::nullopt;
}

std::optional<std::string> FirstDifference(const Observations& expected, const Observations& found) {
  for (const auto& [name, hashes] : expected) {
    const auto other = found.find(name);
    if (other == found.end() || other->second != hashes) {
      return name + (other == found.end() ? " is not there" : " differs");
    }
  }
  for (const auto& [name, hashes] : found) {
    if (expected.count(name) == 0) {
      return name + " should not be there";
    }
  }
  return std::nullopt;
}

}  // namespace tandem::oracle
