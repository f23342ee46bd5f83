#include "schedules_v1/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/check.h"
#include "schedules_v1/effects.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

// "layers.3.mlp" → "layers.*.mlp"
std::string WithoutNumbers(absl::string_view name) {
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(name, '.')) {
    const bool number = !word.empty() && std::all_of(word.begin(), word.end(), absl::ascii_isdigit);
    words.push_back(number ? "*" : std::string(word));
  }
  return absl::StrJoin(words, ".");
}

double SlotBytes(const Program& program, const Instruction& instruction, SlotRole role) {
  TANDEM_CHECK(!instruction.slots.empty(), "a collective has its slot");
  const auto& bytes =
      role == SlotRole::kParameters ? program.parameter_slot_bytes : program.gradient_slot_bytes;
  return static_cast<double>(bytes[instruction.slots[0].size_class]);
}

bool Adds(const Instruction& instruction) {
  const auto any = [](const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
  };
  return any(instruction.add_value_gradients) || any(instruction.add_parameter_gradients);
}

}  // namespace

bool RunsSomething(Opcode opcode) { return opcode != Opcode::kRelease && opcode != Opcode::kReshard; }

Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload) {
  const double ranks = workload.ranks;
  const bool alone = workload.ranks == 1;
  switch (instruction.opcode) {
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
      return {.flops = access.flops, .bytes = access.bytes_moved};
    }
    case Opcode::kLoadBatch:
      return {.bytes = static_cast<double>(outline.values[instruction.target].bytes.expected)};
    case Opcode::kUnshard: {
      const double slot = SlotBytes(program, instruction, SlotRole::kParameters);
      return alone ? Work{.bytes = 2 * slot} : Work{.link_bytes = slot, .collective = true};
    }
    case Opcode::kReduceGradients: {
      const double slot = SlotBytes(program, instruction, SlotRole::kGradients);
      const double fold = slot + (instruction.add_parameter_gradients.at(0) ? 2 : 1) * slot / ranks;
      return {.bytes = fold, .link_bytes = alone ? 0 : slot, .collective = !alone};
    }
    case Opcode::kGradientNorm:
      return {.link_bytes = 0, .collective = !alone};
    case Opcode::kOptimizerStep: {
      const double shard = static_cast<double>(outline.units[instruction.target].elements) / ranks;
      return {.bytes = 7 * shard * workload.element_bytes};
    }
    case Opcode::kSnapshot: {
      double elements = 0;
      for (const Unit& unit : outline.units) {
        elements += static_cast<double>(unit.elements) / ranks;
      }
      return {.bytes = 2 * 3 * elements * workload.element_bytes};  // weights and two moments, copied
    }
    case Opcode::kReport:
    case Opcode::kReshard:
    case Opcode::kRelease:
      return {};
  }
  platform::CheckFailed(__FILE__, __LINE__, "opcode", "every opcode's work is known");
}

std::string KindOf(const Outline& outline, const Instruction& instruction) {
  std::string target;
  if (TargetsNode(instruction.opcode)) {
    target = outline.nodes[instruction.target].name;
  } else if (TargetsUnit(instruction.opcode)) {
    target = outline.units[instruction.target].name;
  } else if (instruction.target >= 0) {
    target = outline.values[instruction.target].name;
  }
  return absl::StrCat(ToText(instruction.opcode), target.empty() ? "" : " ", WithoutNumbers(target),
                      Adds(instruction) ? " add" : "");
}

CostModel::CostModel(const Outline& outline, const Program& program, const Workload& workload,
                     const DeviceProfile& profile)
    : outline_(outline), program_(program), workload_(workload), profile_(profile) {
  const auto rate = profile.compute.find(workload.compute);
  TANDEM_CHECK(rate != profile.compute.end(), "the profile has a rate for the compute type");
  flops_per_second_ = rate->second.flops_per_second;
}

double CostModel::CollectiveSeconds(double bytes, int ranks, Opcode opcode) const {
  const LinkRates& link = profile_.link;
  const LinkRates& network = profile_.network;
  const bool beyond = link.max_ranks > 0 && ranks > link.max_ranks && network.bytes_per_second > 0;
  const int machines = beyond ? (ranks + link.max_ranks - 1) / link.max_ranks : 1;
  double hops = 0;
  if (opcode == Opcode::kGradientNorm) {
    // A few bytes go up a tree and down again.
    const auto levels = [](int count) { return std::bit_width(static_cast<unsigned>(count - 1)); };
    hops = 2 * (levels(beyond ? link.max_ranks : ranks) * link.hop_seconds +
                levels(machines) * network.hop_seconds);
  } else {
    hops = (ranks - machines) * link.hop_seconds + (machines - 1) * network.hop_seconds;
  }
  const double rate =
      beyond ? std::min(link.bytes_per_second, network.bytes_per_second) : link.bytes_per_second;
  const double latency =
      beyond ? std::max(link.latency_seconds, network.latency_seconds) : link.latency_seconds;
  return latency + hops + bytes * (ranks - 1) / ranks / rate;
}

double CostModel::Estimate(const Work& work, int ranks, Opcode opcode) const {
  const double local =
      std::max(work.flops / flops_per_second_, work.bytes / profile_.memory_bytes_per_second);
  return local + (work.collective ? CollectiveSeconds(work.link_bytes, ranks, opcode) : 0) +
         profile_.overhead_seconds;
}

Cost CostModel::Of(const Instruction& instruction) const {
  if (!RunsSomething(instruction.opcode)) {
    return {};
  }
  const Work work = WorkOf(outline_, program_, instruction, workload_);
  const int ranks = work.collective ? workload_.ranks : 1;
  const double estimate = Estimate(work, ranks, instruction.opcode);

  const std::string kind = profile_.measured.empty() ? "" : KindOf(outline_, instruction);
  auto entry = std::lower_bound(profile_.measured.begin(), profile_.measured.end(), kind,
                                [](const MeasuredTime& time, const std::string& k) { return time.kind < k; });
  const MeasuredTime* nearest = nullptr;
  double nearest_ratio = 0;  // estimate of this work over that of the entry's
  for (; entry != profile_.measured.end() && entry->kind == kind; ++entry) {
    const Work measured{entry->flops, entry->bytes, entry->link_bytes, entry->ranks > 1};
    const double ratio = estimate / Estimate(measured, entry->ranks, instruction.opcode);
    if (nearest == nullptr || std::abs(std::log(ratio)) < std::abs(std::log(nearest_ratio))) {
      nearest = &*entry;
      nearest_ratio = ratio;
    }
  }
  // A time that was measured on one rank says nothing of a collective's, nor the other way round.
  if (nearest == nullptr || (nearest->ranks > 1) != work.collective) {
    return {estimate, 1, CostSource::kEstimated};
  }
  const double busy = nearest->seconds > 0 ? nearest->cpu_seconds / nearest->seconds : 0;
  const bool same = nearest->flops == work.flops && nearest->bytes == work.bytes &&
                    nearest->link_bytes == work.link_bytes && nearest->ranks == ranks;
  return {nearest->seconds * (same ? 1 : nearest_ratio), busy,
          same ? CostSource::kMeasured : CostSource::kScaled};
}

}  // namespace tandem::schedules_v1
