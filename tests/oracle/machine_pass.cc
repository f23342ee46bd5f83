// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "tests/oracle/machine.h"

// What a pass of a node does to the memory of all ranks.

namespace tandem::oracle {

using schedules::Access;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Mode;
using schedules::Node;
using schedules::Opcode;
using schedules::Operand;
using schedules::Program;

namespace {

const Access& Half(const Node& node, Opcode opcode) {
  return opcode == Opcode::kBackwardInput    ? node.backward_input
         : opcode == Opcode::kBackwardWeight ? node.backward_weight
                                             : node.forward;
}

}  // namespace

void Machine::Pass(const Program& program, const Instruction& in, int run,
                   const std::vector<Hash>* sizes_read) {
  const Node& node = outline_.nodes[in.target];
  const Access& access = Half(node, in.opcode);
  const bool again = in.opcode == Opcode::kRecompute;
  const bool changes = !again && program.name != "validate";
  // What it reads and writes, by what it is, for each rank.
  enum class What : uint8_t {
    kValue,
    kGradient,
    kPart,
    kContribution,
    kState,
    kCounter,
    kCarried,
    kInputs,
    kScratch
  };
  struct Item {
    What what;
    int a = 0;
    int b = 0;
    const Operand* operand = nullptr;  // nullptr: it lacks one, because it changes nothing but values
    std::vector<Hash> hashes;          // what it holds, where it is read; then what was written
    bool written = false;
  };
  std::vector<Item> items;
  size_t next = 0;
  size_t next_size = 0;
  const auto add = [&](What what, int a, int b, bool there) {
    if (!there) {
      return;
    }
    const Operand& operand = in.operands[next++];
    Item item{what, a, b, &operand, {}};
    if (operand.mode != Mode::kWrites) {
      if (sizes_read != nullptr && program.buffers[operand.buffer].kind == BufferKind::kSizes) {
        item.hashes.assign(sizes_read->begin() + static_cast<int64_t>(next_size),
                           sizes_read->begin() + static_cast<int64_t>(next_size) + ranks_.size());
        next_size += ranks_.size();
      } else {
        item.hashes = Get(program, operand, run);
      }
    }
    items.push_back(std::move(item));
  };
  for (const int v : access.reads) {
    add(What::kValue, v, 0, true);
  }
  for (const int v : access.writes) {
    add(What::kValue, v, 0, !again || options_.recompute[v]);
  }
  for (const int v : access.gradient_reads) {
    add(What::kGradient, v, 0, true);
  }
  for (const int v : access.gradient_writes) {
    add(What::kGradient, v, 0, changes);
  }
  for (const auto& p : access.parameters) {
    add(What::kPart, p.unit, p.part, true);
  }
  for (const auto& p : access.parameter_gradients) {
    add(What::kContribution, p.unit, p.part, changes);
  }
  for (const int s : access.state_reads) {
    add(What::kState, s, 0, true);
  }
  for (const int s : access.state_adds) {
    add(What::kCounter, s, 0, changes);
  }
  for (const int s : access.state_carries) {
    add(What::kCarried, s, 0, changes);
  }
  add(What::kInputs, 0, 0, access.reads_inputs);
  add(What::kScratch, 0, 0, access.scratch.bound > 0);

  const auto find = [&](What what, int a, int b) -> Item& {
    for (Item& item : items) {
      if (item.what == what && item.a == a && item.b == b) {
        return item;
      }
    }
    items.push_back({what, a, b, nullptr, {}});
    return items.back();
  };
  const auto read = [&](What what, int a, int b) {
    std::vector<Hash> hashes = find(what, a, b).hashes;
    hashes.resize(ranks_.size(), 0);
    return hashes;
  };
  std::vector<std::vector<Hash>> reads;  // thing x rank
  for (const int v : access.reads) {
    reads.push_back(read(What::kValue, v, 0));
  }
  for (const int v : access.gradient_reads) {
    reads.push_back(read(What::kGradient, v, 0));
  }
  for (const auto& p : access.parameters) {
    reads.push_back(read(What::kPart, p.unit, p.part));
  }
  for (const int s : access.state_reads) {
    reads.push_back(read(What::kState, s, 0));
  }
  for (const int s : access.state_carries) {
    reads.push_back(read(What::kCarried, s, 0));
  }
  if (access.reads_inputs) {
    reads.push_back(read(What::kInputs, 0, 0));
  }
  std::vector<Hash> calls;
  std::vector<int> indices;
  for (int r = 0; r < ranks_.size(); ++r) {
    const Group group = ranks_.Of(outline_, program, in, r);
    std::vector<Hash> seen;
    for (const int other : group.ranks) {
      for (const std::vector<Hash>& thing : reads) {
        seen.push_back(thing[other]);
      }
    }
    calls.push_back(HashOf(Operation::kPass,
                           {U(in.target), U(static_cast<int>(again ? Opcode::kForward : in.opcode)),
                            access.reads_inputs ? U(in.microbatch) : ~uint64_t{0}},
                           seen));
    indices.push_back(group.index);
  }
  uint64_t place = 0;
  const auto write = [&](What what, int a, int b) {
    Item& item = find(what, a, b);
    const uint64_t k = place++;
    std::vector<Hash> hashes;
    for (int r = 0; r < ranks_.size(); ++r) {
      const Hash made = HashOf(Operation::kOutput, {calls[r], k, U(indices[r])});
      const bool adds = what != What::kCarried &&
                        (item.written || (item.operand != nullptr && item.operand->mode == Mode::kAdds));
      hashes.push_back(adds ? HashOf(Operation::kAdd, {item.hashes[r], made}) : made);
    }
    item.hashes = std::move(hashes);
    item.written = true;
  };
  for (const int v : access.writes) {
    write(What::kValue, v, 0);
  }
  for (const int v : access.gradient_writes) {
    write(What::kGradient, v, 0);
  }
  for (const auto& p : access.parameter_gradients) {
    write(What::kContribution, p.unit, p.part);
  }
  for (const int s : access.state_adds) {
    write(What::kCounter, s, 0);
  }
  for (const int s : access.state_carries) {
    write(What::kCarried, s, 0);
  }
  for (Item& item : items) {
    if (item.what == What::kScratch) {
      item.hashes.clear();
      for (int r = 0; r < ranks_.size(); ++r) {
        item.hashes.push_back(HashOf(Operation::kGarbage, {++num_garbage_}));
      }
      item.written = true;
    }
    if (item.written && item.operand != nullptr && item.operand->mode != Mode::kReads) {
      Set(program, *item.operand, run, item.hashes);
    }
  }
}

}  // namespace tandem::oracle
