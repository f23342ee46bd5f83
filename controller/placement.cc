#include "controller/placement.h"

#include "absl/strings/str_cat.h"

namespace tandem::controller {
namespace {

std::string Count(int64_t number, const char* thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

}  // namespace

Placement Place(const State& state, const v1::Job& job) {
  const v1::Resources& resources = job.resolved().resources();
  const int ranks = job.resolved().parallelism().ranks();
  Placement out;
  out.device = resources.device() == v1::DEVICE_CUDA ? v1::DEVICE_CUDA : v1::DEVICE_CPU;

  std::set<std::pair<std::string, int>> held;
  for (const auto& [id, entry] : state.jobs) {
    if (HasRanks(entry.job.state())) {
      for (const v1::RankPlace& place : Current(entry.job).places()) {
        held.insert({place.worker(), place.place()});
      }
    }
  }

  int num_free = 0;
  int num_places = 0;
  int num_workers = 0;
  int connected = 0;
  std::vector<v1::RankPlace> places;
  for (const auto& [name, worker] : state.workers) {
    if (!worker.connected) {
      continue;
    }
    ++connected;
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
      if (place->device() != out.device || too_small) {
        continue;
      }
      ++num_places;
      ++suitable_here;
      if (!schedulable || !place->healthy() || held.count({name, index}) > 0) {
        continue;
      }
      ++num_free;
      if (static_cast<int>(places.size()) < ranks &&
          (!resources.has_ranks_per_worker() || resources.ranks_per_worker() <= 0 ||
           here < resources.ranks_per_worker())) {
        ++here;
        v1::RankPlace& rank = places.emplace_back();
        rank.set_rank(static_cast<int>(places.size()) - 1);
        rank.set_worker(name);
        rank.set_place(index);
      }
    }
    num_workers += suitable_here > 0 ? 1 : 0;
  }

  if (static_cast<int>(places.size()) == ranks) {
    out.places = std::move(places);
    return out;
  }
  if (connected == 0) {
    out.reason = "NoWorkers";
    out.message =
        absl::StrCat("needs ", Count(ranks, "place"), ", no worker is connected; start tandem-worker");
    return out;
  }
  out.reason = "WaitingForPlaces";
  out.message = absl::StrCat("needs ", Count(ranks, "place"), ", ", num_free, " free of ", num_places, " on ",
                             Count(num_workers, "worker"));
  if (out.device == v1::DEVICE_CUDA) {
    absl::StrAppend(&out.message, " with cuda");
  }
  if (num_free >= ranks) {
    absl::StrAppend(&out.message, "; resources.ranks_per_worker allows ", resources.ranks_per_worker(),
                    " on each");
  }
  return out;
}

}  // namespace tandem::controller
