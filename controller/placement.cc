#include "controller/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::controller {
namespace {

std::string Count(int64_t number, const char* thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

using Held = std::set<std::pair<std::string, int>>;  // worker, place

Held HeldPlaces(const State& state) {
  Held held;
  for (const auto& [id, entry] : state.jobs) {
    if (HasRanks(entry.job.state())) {
      for (const v1::RankPlace& place : Current(entry.job).places()) {
        held.insert({place.worker(), place.place()});
      }
    }
  }
  return held;
}

// What the connected workers have for the ranks of one job on one device.
struct Offer {
  std::vector<v1::RankPlace> places;  // by rank, as far as there are free ones
  int num_free = 0;
  int num_places = 0;
  int num_workers = 0;  // that have such places
};

Offer OfferOf(const State& state, const Held& held, const v1::JobSpec& resolved, v1::Device device) {
  const v1::Resources& resources = resolved.resources();
  Offer out;
  for (const auto& [name, worker] : state.workers) {
    if (!worker.connected) {
      continue;
    }
    const bool schedulable = WhyNotSchedulable(state, worker).empty();
    int here = 0;
    int suitable_here = 0;
    std::map<int, const v1::Place*> by_index;
    for (const v1::Place& place : worker.inventory.places()) {
      by_index[place.index()] = &place;
    }
    for (const auto& [index, place] : by_index) {
      const bool too_small = resources.has_memory_bytes() && place->memory_bytes() > 0 &&
                             place->memory_bytes() < resources.memory_bytes();
      if (place->device() != device || too_small) {
        continue;
      }
      ++out.num_places;
      ++suitable_here;
      if (!schedulable || !place->healthy() || held.count({name, index}) > 0) {
        continue;
      }
      ++out.num_free;
      if (static_cast<int>(out.places.size()) < resolved.parallelism().ranks() &&
          (!resources.has_ranks_per_worker() || here < resources.ranks_per_worker())) {
        ++here;
        v1::RankPlace& rank = out.places.emplace_back();
        rank.set_rank(static_cast<int>(out.places.size()) - 1);
        rank.set_worker(name);
        rank.set_place(index);
      }
    }
    out.num_workers += suitable_here > 0 ? 1 : 0;
  }
  return out;
}

// The devices that the job may run on, the better one first.
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

}  // namespace

Placement Place(const State& state, const v1::Job& job) {
  const int ranks = job.resolved().parallelism().ranks();
  const Held held = HeldPlaces(state);
  Placement out;
  std::vector<std::string> offers;
  bool spread_too_thin = false;
  const std::vector<v1::Device> devices = DevicesOf(job);
  for (const v1::Device device : devices) {
    Offer offer = OfferOf(state, held, job.resolved(), device);
    if (static_cast<int>(offer.places.size()) == ranks) {
      out.device = device;
      out.places = std::move(offer.places);
      return out;
    }
    spread_too_thin = spread_too_thin || offer.num_free >= ranks;
    // Only a job that asked for GPUs needs to hear that there are none.
    if (devices.size() == 1 || device == v1::DEVICE_CPU || offer.num_places > 0) {
      const bool plain = device == v1::DEVICE_CPU && offers.empty();
      offers.push_back(absl::StrCat(offer.num_free, " free of ", offer.num_places, " on ",
                                    Count(offer.num_workers, "worker"), plain ? "" : " with ",
                                    plain ? "" : DeviceName(device)));
    }
  }
  if (std::none_of(state.workers.begin(), state.workers.end(),
                   [](const auto& worker) { return worker.second.connected; })) {
    out.reason = "NoWorkers";
    out.message =
        absl::StrCat("needs ", Count(ranks, "place"), ", no worker is connected; start tandem-worker");
    return out;
  }
  out.reason = "WaitingForPlaces";
  out.message = absl::StrCat("needs ", Count(ranks, "place"), ", ", absl::StrJoin(offers, " and "));
  if (spread_too_thin) {
    absl::StrAppend(&out.message, "; resources.ranks_per_worker allows ",
                    job.resolved().resources().ranks_per_worker(), " on each");
  }
  return out;
}

}  // namespace tandem::controller
