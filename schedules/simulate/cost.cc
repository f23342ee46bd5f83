// SPDX-License-Identifier: Apache-2.0
#include "schedules/simulate/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/check.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

// Rates of attention's own kernel, behind the name of its type. A profile without them has the type's.
constexpr absl::string_view kAttention = " attention";
constexpr absl::string_view kAttentionBackward = " attention backward";

// "bf16 grouped" → "bf16"
std::string TypeOf(const Node& node) { return node.compute.substr(0, node.compute.find(' ')); }

double BytesOf(const Program& program, const Operand& operand) {
  const Buffer& buffer = program.buffers.at(operand.buffer);
  if (operand.part < 0) {
    return static_cast<double>(buffer.bytes.expected);
  }
  const BufferPart& part = buffer.parts.at(operand.part);
  return static_cast<double>(part.end - part.begin);
}

double BytesOf(const Program& program, const Instruction& instruction, Mode mode) {
  double bytes = 0;
  for (const Operand& operand : instruction.operands) {
    if (operand.mode == mode && operand.role != Role::kStaging) {
      bytes += BytesOf(program, operand);
    }
  }
  return bytes;
}

double MovedBytes(const Program& program, const Instruction& instruction) {
  return BytesOf(program, instruction, Mode::kReads) + BytesOf(program, instruction, Mode::kWrites) +
         2 * BytesOf(program, instruction, Mode::kAdds);
}

// The bytes of the reduced gradients.
double AccumulatorBytes(const Program& program, const Instruction& instruction) {
  const Operand* const reduced = Find(instruction, Role::kReduced);
  return reduced == nullptr ? 0 : BytesOf(program, *reduced);
}

// Where the gradients that the instruction reduces are placed.
const Strategy& PlacementOf(const Outline& outline, const Instruction& instruction,
                            const Workload& workload) {
  return OfGroup(outline.units[instruction.target].group, workload.strategy, workload.expert_strategy);
}

double LinkBytes(const Outline& outline, const Program& program, const Instruction& instruction,
                 const Workload& workload, LinkRule rule) {
  switch (rule) {
    case LinkRule::kWritten:
      return BytesOf(program, instruction, Mode::kWrites);
    case LinkRule::kReduced: {
      const AxisPlacement& inner = PlacementOf(outline, instruction, workload).inner;
      return BytesOf(program, instruction, Mode::kReads) +
             (inner.optimizer == Placement::kReplicate ? AccumulatorBytes(program, instruction) : 0);
    }
    case LinkRule::kReducedOuter: {
      const AxisPlacement& outer = PlacementOf(outline, instruction, workload).outer;
      return AccumulatorBytes(program, instruction) * (outer.optimizer == Placement::kReplicate ? 2 : 1);
    }
    case LinkRule::kPeer:
      return BytesOf(program, instruction, Mode::kReads) + BytesOf(program, instruction, Mode::kWrites);
    case LinkRule::kNone:
    case LinkRule::kPass:
    case LinkRule::kMessage:
      return 0;
  }
  platform::CheckFailed(__FILE__, __LINE__, "rule", "every rule says what crosses the link");
}

// "layers.3.mlp" → "layers.*.mlp"
std::string WithoutNumbers(absl::string_view name) {
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(name, '.')) {
    const bool number = !word.empty() && std::all_of(word.begin(), word.end(), absl::ascii_isdigit);
    words.push_back(number ? "*" : std::string(word));
  }
  return absl::StrJoin(words, ".");
}

// Whether an instruction adds to gradients that others write first; an optimizer step always adds.
bool AddsToGradient(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.operands.begin(), instruction.operands.end(), [&](const Operand& operand) {
    const BufferKind kind = program.buffers[operand.buffer].kind;
    return operand.mode == Mode::kAdds &&
           (kind == BufferKind::kGradients || kind == BufferKind::kFullGradient ||
            kind == BufferKind::kCollected || kind == BufferKind::kActivationGradient ||
            kind == BufferKind::kAllToAll);
  });
}

std::vector<std::string> NonEmpty(std::vector<std::string> words) {
  std::erase(words, "");
  return words;
}

// What running the forward again saves because some of its values were kept.
Work SavedByKept(const Outline& outline, const Program& program, const Instruction& recompute) {
  const Node& node = outline.nodes[recompute.target];
  Work saved;
  for (size_t i = 0; i < node.forward.writes.size(); ++i) {
    const ValueId value = node.forward.writes[i];
    const PassOperand written{.role = Role::kValue, .id = value, .mode = Mode::kWrites};
    if (Find(program, recompute, written) == nullptr) {
      saved.flops += node.write_flops.empty() ? 0 : node.write_flops[i];
      saved.bytes += static_cast<double>(outline.values[value].bytes.expected);
    }
  }
  return saved;
}

}  // namespace

Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload) {
  const OpcodeInfo& row = InfoOf(instruction.opcode);
  Work work;
  if (instruction.communicator >= 0) {
    const auto group = workload.groups.find(program.communicators.at(instruction.communicator).group);
    TANDEM_CHECK(group != workload.groups.end(), "the workload has every process group of the program");
    work.ranks = row.link == LinkRule::kPeer ? 2 : group->second.ranks;
    work.stride = group->second.stride;
  }
  switch (row.memory) {
    case MemoryRule::kNone:
      break;
    case MemoryRule::kPass: {
      const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
      work.flops = access.flops;
      work.bytes = access.bytes_moved;
      work.link_bytes = work.ranks > 1 ? access.link_bytes : 0;
      if (instruction.opcode == Opcode::kRecompute) {
        const Work saved = SavedByKept(outline, program, instruction);
        work.flops -= saved.flops;
        work.bytes -= saved.bytes;
      }
      return work;
    }
    case MemoryRule::kOperands:
      work.bytes = MovedBytes(program, instruction);
      break;
    case MemoryRule::kCopyAlone:
      work.bytes = work.ranks > 1 ? 0 : MovedBytes(program, instruction);
      break;
  }
  work.link_bytes = work.ranks > 1 ? LinkBytes(outline, program, instruction, workload, row.link) : 0;
  return work;
}

double CrossingBytes(const Work& work, Opcode opcode) {
  return InfoOf(opcode).link == LinkRule::kPeer ? work.link_bytes
                                                : work.link_bytes * (work.ranks - 1) / work.ranks;
}

std::string KindOf(const Outline& outline, const Program& program, const Instruction& instruction) {
  const bool pass = InfoOf(instruction.opcode).memory == MemoryRule::kPass;
  return absl::StrJoin(NonEmpty({ToText(instruction.opcode), WithoutNumbers(TargetName(instruction, outline)),
                                 pass ? TypeOf(outline.nodes[instruction.target]) : "",
                                 AddsToGradient(program, instruction) ? "add" : ""}),
                       " ");
}

bool RunsSomething(Opcode opcode) {
  const OpcodeInfo& row = InfoOf(opcode);
  return row.memory != MemoryRule::kNone || row.link != LinkRule::kNone;
}

CostModel::CostModel(const Outline& outline, const Program& program, const Workload& workload,
                     const DeviceProfile& profile)
    : outline_(outline), program_(program), workload_(workload), profile_(profile) {}

double CostModel::CollectiveSeconds(const Work& work, Opcode opcode) const {
  const LinkRates& link = profile_.link;
  const LinkRates& network = profile_.network;
  const int ranks = work.ranks;
  const bool everywhere = link.max_ranks == 0 || network.bytes_per_second == 0;
  const int near = everywhere ? ranks : std::clamp(link.max_ranks / work.stride, 1, ranks);  // on a machine
  const int machines = (ranks + near - 1) / near;
  const bool beyond = machines > 1;
  const LinkRule rule = InfoOf(opcode).link;
  double hops = 0;
  if (rule == LinkRule::kMessage) {
    // A few bytes go up a tree and down again.
    const auto levels = [](int count) { return std::bit_width(static_cast<unsigned>(count - 1)); };
    hops = 2 * (levels(near) * link.hop_seconds + levels(machines) * network.hop_seconds);
  } else {
    hops = (ranks - machines) * link.hop_seconds + (machines - 1) * network.hop_seconds;
  }
  const double rate = beyond
                          ? std::min(link.bytes_per_second, network.bytes_per_second * near / link.max_ranks)
                          : link.bytes_per_second;
  const double latency =
      beyond ? std::max(link.latency_seconds, network.latency_seconds) : link.latency_seconds;
  return latency + hops + CrossingBytes(work, opcode) / rate;
}

double CostModel::FlopsPerSecond(const Node& node, absl::string_view products) const {
  auto rate = profile_.compute.find(absl::StrCat(TypeOf(node), products));
  if (rate == profile_.compute.end()) {
    rate = profile_.compute.find(TypeOf(node));
  }
  TANDEM_CHECK(rate != profile_.compute.end(),
               "the profile has a rate for the type of every node with FLOPs");
  return rate->second.flops_per_second;
}

double CostModel::LocalSeconds(const Work& work, const Instruction& instruction) const {
  if (instruction.opcode == Opcode::kSnapshot && profile_.host_bytes_per_second > 0) {
    return work.bytes / 2 /
           profile_.host_bytes_per_second;  // they are read on one side and written on the other
  }
  const double memory = work.bytes / profile_.memory_bytes_per_second;
  if (work.flops == 0) {  // only passes of nodes have some
    return memory;
  }
  const Node& node = outline_.nodes[instruction.target];
  const Access& access = AccessOf(node, instruction.opcode);
  const double scores = access.flops > 0 ? access.score_flops / access.flops : 0;
  const double rows = access.bytes_moved > 0 ? access.row_bytes / access.bytes_moved : 0;
  const bool forward = instruction.opcode == Opcode::kForward || instruction.opcode == Opcode::kRecompute;
  double seconds = work.flops * (1 - scores) /
                   FlopsPerSecond(node, absl::string_view(node.compute).substr(TypeOf(node).size()));
  if (scores > 0) {
    seconds += work.flops * scores / FlopsPerSecond(node, forward ? kAttention : kAttentionBackward);
  }
  return std::max(seconds + rows * memory, memory);
}

double CostModel::Estimate(const Work& work, const Instruction& instruction) const {
  return LocalSeconds(work, instruction) +
         (work.ranks > 1 ? CollectiveSeconds(work, instruction.opcode) : 0) + profile_.overhead_seconds;
}

Cost CostModel::Of(const Instruction& instruction) const {
  if (!RunsSomething(instruction.opcode)) {
    return {};
  }
  const Work work = WorkOf(outline_, program_, instruction, workload_);
  const double estimate = Estimate(work, instruction);

  const std::string kind = profile_.measured.empty() ? "" : KindOf(outline_, program_, instruction);
  auto entry = std::lower_bound(profile_.measured.begin(), profile_.measured.end(), kind,
                                [](const MeasuredTime& time, const std::string& k) { return time.kind < k; });
  const MeasuredTime* nearest = nullptr;
  double nearest_ratio = 0;  // estimate of this work over that of the entry's
  for (; entry != profile_.measured.end() && entry->kind == kind; ++entry) {
    const double of_entry = Estimate(entry->work, instruction);
    if (of_entry <= 0 && entry->work != work) {
      continue;  // no rate follows from the time of no work
    }
    const double ratio = entry->work == work ? 1 : estimate / of_entry;
    if (nearest == nullptr || std::abs(std::log(ratio)) < std::abs(std::log(nearest_ratio))) {
      nearest = &*entry;
      nearest_ratio = ratio;
    }
  }
  // A time that was measured on one rank says nothing of a collective's, nor the other way round.
  if (nearest == nullptr || (nearest->work.ranks > 1) != (work.ranks > 1)) {
    return {estimate, 1, CostSource::kEstimated};
  }
  const double busy = nearest->seconds > 0 ? nearest->cpu_seconds / nearest->seconds : 0;
  const bool same = nearest->work == work;
  return {nearest->seconds * (same ? 1 : nearest_ratio), busy,
          same ? CostSource::kMeasured : CostSource::kScaled};
}

}  // namespace tandem::schedules
