// SPDX-License-Identifier: Apache-2.0
#include "controller/core/placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/check.h"
#include "platform/counted_text.h"
#include "platform/net_address.h"
#include "proto/names.h"
#include "proto/reasons.h"

namespace tandem::controller {
namespace {

// The slots that jobs hold. Workers of one machine may offer the same GPU, so its uuid is held too.
struct Held {
  std::set<std::pair<std::string, int>> slots;  // worker, slot
  std::set<std::string> gpus;                   // uuids
};

Held HeldSlots(const State& state) {
  Held held;
  for (const std::string& id : state.jobs.with_ranks()) {
    for (const v1::RankSlot& slot : Current(state.jobs.at(id).job).slots()) {
      held.slots.insert({slot.worker(), slot.slot()});
    }
  }
  for (const auto& [name, worker] : state.workers) {
    for (const v1::Slot& slot : worker.inventory.slots()) {
      if (!slot.uuid().empty() && held.slots.count({name, slot.index()}) > 0) {
        held.gpus.insert(slot.uuid());
      }
    }
  }
  return held;
}

// Returns where the ranks of a worker are reached: "" is the network that workers share, anything else is one
// machine.
std::string ReachOf(const WorkerEntry& worker) {
  return platform::IsLoopback(worker.inventory.data_address()) ? "machine " + worker.inventory.hostname()
                                                               : "";
}

// A key of a worker. Workers are grouped by equal keys: by where they are reached, by that and their build,
// or all in one group.
using Group = std::pair<std::string, std::string>;
using GroupOf = Group (*)(const WorkerEntry&);

Group Everyone(const WorkerEntry& /*worker*/) { return {}; }

Group ByReach(const WorkerEntry& worker) { return {ReachOf(worker), ""}; }

Group ByReachAndBuild(const WorkerEntry& worker) { return {ReachOf(worker), worker.build}; }

// The slots that connected workers have for one job on one device.
struct Offer {
  std::vector<v1::RankSlot> slots;  // by rank, for as many ranks as there are free slots
  int num_free = 0;
  int num_slots = 0;
  int num_workers = 0;  // workers that have such slots
};

bool Suits(const v1::Slot& slot, const v1::Resources& resources, v1::Device device) {
  const bool too_small = resources.has_memory_bytes() && slot.memory_bytes() > 0 &&
                         slot.memory_bytes() < resources.memory_bytes();
  return slot.device() == device && !too_small;
}

// Returns what the connected workers of `group` offer. A GPU that several workers offer counts once.
Offer OfferOf(const State& state, const Held& held, const v1::JobSpec& resolved, v1::Device device,
              GroupOf group_of, const Group& group) {
  const v1::Resources& resources = resolved.resources();
  Offer out;
  std::set<std::string> counted;  // uuids
  std::set<std::string> free;
  std::set<std::string> taken;
  for (const auto& [name, worker] : state.workers) {
    if (!worker.connected || group_of(worker) != group) {
      continue;
    }
    const bool schedulable = WhyNotSchedulable(state, worker).empty();
    int here = 0;
    int suitable_here = 0;
    std::map<int, const v1::Slot*> by_index;
    for (const v1::Slot& slot : worker.inventory.slots()) {
      by_index[slot.index()] = &slot;
    }
    for (const auto& [index, slot] : by_index) {
      if (!Suits(*slot, resources, device)) {
        continue;
      }
      const std::string& uuid = slot->uuid();
      out.num_slots += uuid.empty() || counted.insert(uuid).second ? 1 : 0;
      ++suitable_here;
      if (!schedulable || !slot->healthy() || held.slots.count({name, index}) > 0 ||
          held.gpus.count(uuid) > 0 || taken.count(uuid) > 0) {
        continue;
      }
      out.num_free += uuid.empty() || free.insert(uuid).second ? 1 : 0;
      if (static_cast<int>(out.slots.size()) < resolved.parallelism().ranks() &&
          (!resources.has_ranks_per_worker() || here < resources.ranks_per_worker())) {
        ++here;
        if (!uuid.empty()) {
          taken.insert(uuid);
        }
        v1::RankSlot& rank = out.slots.emplace_back();
        rank.set_rank(static_cast<int>(out.slots.size()) - 1);
        rank.set_worker(name);
        rank.set_slot(index);
      }
    }
    out.num_workers += suitable_here > 0 ? 1 : 0;
  }
  return out;
}

// Tries the groups in the order of their first worker's name. Returns the slots of the first group that has
// enough; empty if none has.
std::vector<v1::RankSlot> SlotsTogether(const State& state, const Held& held, const v1::JobSpec& resolved,
                                        v1::Device device, GroupOf group_of) {
  std::set<Group> tried;
  for (const auto& [name, worker] : state.workers) {
    const Group group = group_of(worker);
    if (!worker.connected || !tried.insert(group).second) {
      continue;
    }
    Offer offer = OfferOf(state, held, resolved, device, group_of, group);
    if (static_cast<int>(offer.slots.size()) == resolved.parallelism().ranks()) {
      return std::move(offer.slots);
    }
  }
  return {};
}

// "w0 (127.0.0.1) and w1 (10.0.0.7)": two workers of different groups that have some of the slots, each with
// its `text`. Requires slots of several groups.
std::string ExampleOfTwo(const State& state, const std::vector<v1::RankSlot>& slots, GroupOf group_of,
                         const std::string& (*text)(const WorkerEntry&)) {
  const WorkerEntry& first = state.workers.at(slots.front().worker());
  const auto other = std::find_if(slots.begin(), slots.end(), [&](const v1::RankSlot& slot) {
    return group_of(state.workers.at(slot.worker())) != group_of(first);
  });
  TANDEM_CHECK(other != slots.end(), "the slots are of several groups");
  return absl::StrCat(slots.front().worker(), " (", text(first), ") and ", other->worker(), " (",
                      text(state.workers.at(other->worker())), ")");
}

// Returns the devices on which the job may run, the better one first.
std::vector<v1::Device> DevicesOf(const v1::Job& job) {
  if (job.attempt() > 0) {
    return {Current(job).device()};
  }
  switch (job.resolved().resources().device()) {
    case v1::DEVICE_CUDA:
      return {v1::DEVICE_CUDA};
    case v1::DEVICE_CPU:
      return {v1::DEVICE_CPU};
    default:
      return {v1::DEVICE_CUDA, v1::DEVICE_CPU};
  }
}

// Returns how many of the job's ranks all registered workers together could run at a time on one device.
int CapacityOf(const State& state, const v1::JobSpec& resolved, v1::Device device) {
  const v1::Resources& resources = resolved.resources();
  std::set<std::string> counted;  // uuids of GPUs, which several workers may offer
  int out = 0;
  for (const auto& [name, worker] : state.workers) {
    int here = 0;
    for (const v1::Slot& slot : worker.inventory.slots()) {
      if (Suits(slot, resources, device) && (slot.uuid().empty() || counted.insert(slot.uuid()).second)) {
        ++here;
      }
    }
    out += resources.has_ranks_per_worker() ? std::min(here, resources.ranks_per_worker()) : here;
  }
  return out;
}

}  // namespace

std::optional<std::string> WhyBeyondCapacity(const State& state, const v1::Job& job) {
  const int ranks = job.resolved().parallelism().ranks();
  int most = 0;
  for (const v1::Device device : DevicesOf(job)) {
    most = std::max(most, CapacityOf(state, job.resolved(), device));
  }
  if (most >= ranks) {
    return std::nullopt;
  }
  return absl::StrCat("needs ", platform::CountedText(ranks, "slot"),
                      " at a time, and all workers that have registered have ", most,
                      " that suit it; it starts when more join, and later jobs do not wait for it; "
                      "`tandem cancel` it if it asks for too much");
}

Placement Place(const State& state, const v1::Job& job) {
  const int ranks = job.resolved().parallelism().ranks();
  const std::string needs = absl::StrCat("needs ", platform::CountedText(ranks, "slot"));
  const Held held = HeldSlots(state);
  std::vector<std::string> offers;
  bool spread_too_thin = false;
  std::string mixed;
  std::string apart;
  const std::vector<v1::Device> devices = DevicesOf(job);
  for (const v1::Device device : devices) {
    const Offer offer = OfferOf(state, held, job.resolved(), device, Everyone, {});
    // If all workers together have too few slots, no group has enough. So most waiting jobs need one look.
    if (static_cast<int>(offer.slots.size()) == ranks) {
      std::vector<v1::RankSlot> slots = SlotsTogether(state, held, job.resolved(), device, ByReachAndBuild);
      if (!slots.empty()) {
        return {.slots = std::move(slots), .device = device};
      }
      const std::vector<v1::RankSlot> of_any_build =
          SlotsTogether(state, held, job.resolved(), device, ByReach);
      if (!of_any_build.empty()) {
        mixed = ExampleOfTwo(state, of_any_build, ByReachAndBuild,
                             [](const WorkerEntry& worker) -> const std::string& { return worker.build; });
      } else {
        apart = ExampleOfTwo(
            state, offer.slots, ByReach,
            [](const WorkerEntry& worker) -> const std::string& { return worker.inventory.data_address(); });
      }
    }
    spread_too_thin = spread_too_thin || offer.num_free >= ranks;
    // Only a job that asks for GPUs is told that there are none.
    if (devices.size() == 1 || device == v1::DEVICE_CPU || offer.num_slots > 0) {
      const bool plain = device == v1::DEVICE_CPU && offers.empty();
      offers.push_back(absl::StrCat(offer.num_free, " free of ", offer.num_slots, " on ",
                                    platform::CountedText(offer.num_workers, "worker"), plain ? "" : " with ",
                                    plain ? "" : proto::LowerName(device)));
    }
  }
  if (std::none_of(state.workers.begin(), state.workers.end(),
                   [](const auto& worker) { return worker.second.connected; })) {
    return {.reason = proto::ReasonCode("NoWorkers"),
            .message = absl::StrCat(needs,
                                    ", and no worker is connected; start tandem-worker, or see in its log "
                                    "why it is not connected")};
  }
  if (!mixed.empty()) {
    return {.reason = proto::ReasonCode("MixedBuilds"),
            .message = absl::StrCat(needs, " on workers of one build, and ", mixed,
                                    " are of two, which may compute other numbers; run the same build on "
                                    "every worker")};
  }
  if (!apart.empty()) {
    return {.reason = proto::ReasonCode("WorkersApart"),
            .message = absl::StrCat(
                needs, " on workers whose ranks reach each other, and ", apart,
                " do not: a loopback address is reached on its own machine only; start each tandem-worker "
                "with the --controller or --data-address at which the others reach it")};
  }
  std::string message = absl::StrCat(needs, ", ", absl::StrJoin(offers, " and "));
  if (spread_too_thin) {
    absl::StrAppend(&message, "; resources.ranks_per_worker allows ",
                    job.resolved().resources().ranks_per_worker(), " on each");
  }
  return {.reason = proto::ReasonCode("WaitingForSlots"), .message = std::move(message)};
}

}  // namespace tandem::controller
