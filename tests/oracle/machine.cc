#include "tests/oracle/machine.h"

#include <algorithm>
#include <utility>

namespace tandem::oracle {

using schedules::Access;
using schedules::Buffer;
using schedules::BufferId;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Life;
using schedules::Mode;
using schedules::Node;
using schedules::Opcode;
using schedules::Operand;
using schedules::Program;

namespace {

// The element of a ring that a run's operand means.
int Element(const Buffer& buffer, int run, bool former) {
  return buffer.life == Life::kRing ? (run + (former ? 1 : 0)) % 2 : 0;
}

int64_t Stride(const Buffer& buffer) {
  return (buffer.bytes.bound + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
}

bool OnHost(BufferKind kind) {
  return kind == BufferKind::kHostInputs || kind == BufferKind::kHostBatch ||
         kind == BufferKind::kHostLosses || kind == BufferKind::kHostUpdateNorms ||
         kind == BufferKind::kHostOutcome || kind == BufferKind::kSizes;
}

const Access& Half(const Node& node, Opcode opcode) {
  return opcode == Opcode::kBackward         ? node.backward
         : opcode == Opcode::kBackwardInput  ? node.backward_input
         : opcode == Opcode::kBackwardWeight ? node.backward_weight
                                             : node.forward;
}

}  // namespace

Ranks::Ranks(const schedules::BuildOptions& options)
    : dense_(options.dense), expert_(options.expert), size_(options.dense.inner * options.dense.outer) {}

Group Ranks::Of(schedules::UnitGroup group, int axis, int rank) const {
  const schedules::MeshAxes& mesh = group == schedules::UnitGroup::kExpert ? expert_ : dense_;
  const int apart = std::max(1, size_ / (mesh.inner * mesh.outer));  // ranks that hold other experts
  const int logical = rank / apart;
  Group result;
  for (int other = rank % apart; other < size_; other += apart) {
    const int place = other / apart;
    if (axis == 0 ? place / mesh.inner == logical / mesh.inner : place % mesh.inner == logical % mesh.inner) {
      result.index = other == rank ? static_cast<int>(result.ranks.size()) : result.index;
      result.ranks.push_back(other);
    }
  }
  return result;
}

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

Machine::Place Machine::PlaceOf(const Program& program, const Operand& operand, int run) const {
  const Buffer& buffer = program.buffers[operand.buffer];
  Place place{.begin = buffer.address + Element(buffer, run, operand.former) * Stride(buffer),
              .host = OnHost(buffer.kind)};
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

Group Machine::GroupOf(const Program& program, const Instruction& in, int rank) const {
  const Group alone{{rank}, 0};
  if (in.communicator < 0) {
    return alone;
  }
  const std::string& name = program.communicators[in.communicator].group;
  for (const auto group : {schedules::UnitGroup::kDense, schedules::UnitGroup::kExpert}) {
    const schedules::MeshAxes& mesh =
        group == schedules::UnitGroup::kDense ? options_.dense : options_.expert;
    if (name == mesh.inner_group || name == mesh.gather_group) {
      return ranks_.Of(group, 0, rank);
    }
    if (name == mesh.outer_group &&
        (group == schedules::UnitGroup::kExpert || name != options_.expert.outer_group ||
         outline_.units[in.target].group == group)) {
      return ranks_.Of(group, 1, rank);
    }
  }
  Group all;
  const bool experts =
      IsNodePass(in.opcode);  // who exchanges tokens: consecutive ranks, that hold other experts
  const int apart = std::max(1, ranks_.size() / (options_.expert.inner * options_.expert.outer));
  for (int other = 0; other < ranks_.size(); ++other) {
    if (!experts || other / apart == rank / apart) {
      all.index = other == rank ? static_cast<int>(all.ranks.size()) : all.index;
      all.ranks.push_back(other);
    }
  }
  return all;
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

void Machine::Pass(const Program& program, const Instruction& in, int run,
                   const std::vector<Hash>* sizes_read) {
  const Node& node = outline_.nodes[in.target];
  const Access& access = Half(node, in.opcode);
  const bool again = in.opcode == Opcode::kRecompute;
  const bool changes = !again && program.name != "validate";
  // What it reads and writes, by what it is, for each rank.
  enum class What : uint8_t { kValue, kGradient, kPart, kContribution, kState, kCounter, kInputs, kScratch };
  struct Item {
    What what;
    int a = 0;
    int b = 0;
    const Operand* operand = nullptr;  // nullptr: only between the halves
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
  for (const int v : access.reads) add(What::kValue, v, 0, true);
  for (const int v : access.writes) add(What::kValue, v, 0, !again || options_.recompute[v]);
  for (const int v : access.gradient_reads) add(What::kGradient, v, 0, true);
  for (const int v : access.gradient_writes) add(What::kGradient, v, 0, changes);
  for (const auto& p : access.parameters) add(What::kPart, p.unit, p.part, true);
  for (const auto& p : access.parameter_gradients) add(What::kContribution, p.unit, p.part, changes);
  for (const int s : access.state_reads) add(What::kState, s, 0, true);
  for (const int s : access.state_adds) add(What::kCounter, s, 0, changes);
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
  const bool halves = in.opcode == Opcode::kBackward && node.splits_backward;
  const std::vector<Opcode> steps = halves
                                        ? std::vector<Opcode>{Opcode::kBackwardInput, Opcode::kBackwardWeight}
                                        : std::vector<Opcode>{again ? Opcode::kForward : in.opcode};
  for (const Opcode step : steps) {
    const Access& half = Half(node, step);
    std::vector<std::vector<Hash>> reads;  // thing x rank
    for (const int v : half.reads) reads.push_back(read(What::kValue, v, 0));
    for (const int v : half.gradient_reads) reads.push_back(read(What::kGradient, v, 0));
    for (const auto& p : half.parameters) reads.push_back(read(What::kPart, p.unit, p.part));
    for (const int s : half.state_reads) reads.push_back(read(What::kState, s, 0));
    if (half.reads_inputs) reads.push_back(read(What::kInputs, 0, 0));
    std::vector<Hash> calls;
    std::vector<int> indices;
    for (int r = 0; r < ranks_.size(); ++r) {
      const Group group = GroupOf(program, in, r);
      std::vector<Hash> seen;
      for (const int other : group.ranks) {
        for (const std::vector<Hash>& thing : reads) {
          seen.push_back(thing[other]);
        }
      }
      calls.push_back(HashOf(
          Operation::kPass,
          {U(in.target), U(static_cast<int>(step)), half.reads_inputs ? U(in.microbatch) : ~uint64_t{0}},
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
        const bool adds = item.written || (item.operand != nullptr && item.operand->mode == Mode::kAdds);
        hashes.push_back(adds ? HashOf(Operation::kAdd, {item.hashes[r], made}) : made);
      }
      item.hashes = std::move(hashes);
      item.written = true;
    };
    for (const int v : half.writes) write(What::kValue, v, 0);
    for (const int v : half.gradient_writes) write(What::kGradient, v, 0);
    for (const auto& p : half.parameter_gradients) write(What::kContribution, p.unit, p.part);
    for (const int s : half.state_adds) write(What::kCounter, s, 0);
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
    for (const int other : GroupOf(program, in, r).ranks) {
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
      const size_t sum = outer ? 0 : 2;
      const bool adds = !outer && ops[2].mode == Mode::kAdds;
      std::vector<Hash> sums = for_ranks([&](int r) {
        return HashOf(Operation::kFold, {unit, adds ? held[2][r] : 0, U(GroupOf(program, in, r).index)},
                      of_group(held[0], r));
      });
      garbage(ops[1]);
      Set(program, ops[sum], run, sums);
      if (ops.size() > (outer ? 2U : 3U)) {
        Set(program, ops.back(), run, for_ranks([&](int r) {
              return HashOf(Operation::kNormTerms, {unit, sums[r]});
            }));
      }
      break;
    }
    default: {  // OptimizerStep
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
    }
  }
}

void Machine::Run(const Program& program, const Instruction& in, int run,
                  const std::vector<Hash>* sizes_read) {
  switch (in.opcode) {
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      Pass(program, in, run, sizes_read);
      break;
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
    case Opcode::kReport: {
      const size_t half = in.operands.size() / 2;
      for (size_t k = 0; k < half; ++k) {
        Set(program, in.operands[half + k], run, Get(program, in.operands[k], run));
      }
      break;
    }
    case Opcode::kSend: {
      const bool gradient = program.buffers[in.operands[0].buffer].kind == BufferKind::kActivationGradient;
      std::vector<Hash>& sent =
          observations_["run " + std::to_string(run) + " sends " + (gradient ? "d " : "") +
                        outline_.values[in.target].name + " mb " + std::to_string(in.microbatch)];
      const std::vector<Hash> hashes = Get(program, in.operands[0], run);
      sent.insert(sent.end(), hashes.begin(), hashes.end());
      break;
    }
    case Opcode::kReceive: {
      const bool gradient = program.buffers[in.operands[0].buffer].kind == BufferKind::kActivationGradient;
      std::vector<Hash> received;
      for (int r = 0; r < ranks_.size(); ++r) {
        received.push_back(
            HashOf(Operation::kReceived, {U(run), U(in.target), U(in.microbatch), gradient ? 1U : 0U, U(r)}));
      }
      Set(program, in.operands[0], run, received);
      break;
    }
    case Opcode::kHostWait:
    case Opcode::kFill:
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
    default:
      ForUnit(program, in, run);
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

void AppendTouched(const Program& program, const Operand& operand, int run, std::vector<Touched>& touched) {
  const Buffer& buffer = program.buffers[operand.buffer];
  const int64_t begin = buffer.address + Element(buffer, run, operand.former) * Stride(buffer);
  const bool write = operand.mode != Mode::kReads;
  const bool host = OnHost(buffer.kind);
  if (operand.part >= 0) {
    touched.push_back(
        {begin + buffer.parts[operand.part].begin, begin + buffer.parts[operand.part].end, host, write});
  } else if (buffer.parts.empty()) {
    touched.push_back({begin, begin + buffer.bytes.bound, host, write});
  } else {
    for (const schedules::BufferPart& part : buffer.parts) {
      touched.push_back({begin + part.begin, begin + part.end, host, write});
    }
  }
}

}  // namespace tandem::oracle
