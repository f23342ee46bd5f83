#include "parallel/process_groups.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "parallel/rank_grid.h"

namespace tandem::parallel {
namespace {

// Attention and the like live on the dense grid, experts on theirs; the pipeline is the same on both.
struct Grids {
  RankGrid dense;
  RankGrid expert;
  int expert_data = 1;  // ranks of the expert grid's dp axis
};

absl::Status CheckDivides(const std::string& name, int64_t divisor, const std::string& whole_name,
                          int64_t whole) {
  if (whole % divisor == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " = ", divisor, " does not divide ", whole_name, " ", whole));
}

absl::Status CheckSizes(const GridSizes& sizes) {
  const std::pair<const char*, int> all[] = {
      {"world", sizes.world},       {"tensor", sizes.tensor}, {"context", sizes.context},
      {"pipeline", sizes.pipeline}, {"expert", sizes.expert}, {"expert_tensor", sizes.expert_tensor},
      {"replicas", sizes.replicas}};
  for (const auto& [name, size] : all) {
    if (size < 1 || size > (1 << 20)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", size, ", must be 1 to ", 1 << 20));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Grids> MakeGrids(const GridSizes& sizes) {
  if (absl::Status status = CheckSizes(sizes); !status.ok()) {
    return status;
  }
  const int64_t dense_model = int64_t{sizes.tensor} * sizes.context * sizes.pipeline;
  if (absl::Status status =
          CheckDivides("tensor × context × pipeline", dense_model, "world size", sizes.world);
      !status.ok()) {
    return status;
  }
  // Each factor is at most 2^20, so the product of three fits.
  const int64_t expert_model = int64_t{sizes.expert_tensor} * sizes.expert * sizes.pipeline;
  if (absl::Status status =
          CheckDivides("expert_tensor × expert × pipeline", expert_model, "world size", sizes.world);
      !status.ok()) {
    return status;
  }
  const int dense_data = static_cast<int>(sizes.world / dense_model);
  const int expert_data = static_cast<int>(sizes.world / expert_model);
  if (absl::Status status = CheckDivides("replicas", sizes.replicas, "the data-parallel ranks (with context)",
                                         int64_t{dense_data} * sizes.context);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          CheckDivides("replicas", sizes.replicas, "the data-parallel ranks of experts", expert_data);
      !status.ok()) {
    return status;
  }
  absl::StatusOr<RankGrid> dense =
      RankGrid::Make({.tp = sizes.tensor, .cp = sizes.context, .dp = dense_data, .pp = sizes.pipeline},
                     sizes.order, sizes.rank_offset);
  if (!dense.ok()) {
    return dense.status();
  }
  absl::StatusOr<RankGrid> expert =
      RankGrid::Make({.tp = sizes.expert_tensor, .ep = sizes.expert, .dp = expert_data, .pp = sizes.pipeline},
                     sizes.order, sizes.rank_offset);
  if (!expert.ok()) {
    return expert.status();
  }
  const std::vector<std::string> order = *ParseOrder(sizes.order);
  if (dense->Groups("pp") != expert->Groups("pp") ||
      (order.back() != "pp" && sizes.pipeline > 1 && expert_data != dense_data)) {
    return absl::InvalidArgumentError(
        absl::StrCat("order ", sizes.order, " gives experts other pipelines than the rest (tensor ",
                     sizes.tensor, ", context ", sizes.context, ", expert ", sizes.expert, ", expert_tensor ",
                     sizes.expert_tensor, ", pipeline ", sizes.pipeline, "): put pp last"));
  }
  return Grids{.dense = *std::move(dense), .expert = *std::move(expert), .expert_data = expert_data};
}

// Every list cut into `count` slices of equal length.
std::vector<RankList> Slices(const std::vector<RankList>& lists, int count) {
  std::vector<RankList> slices;
  for (const RankList& list : lists) {
    const size_t length = list.size() / count;
    for (size_t begin = 0; begin < list.size(); begin += length) {
      slices.emplace_back(list.begin() + begin, list.begin() + begin + length);
    }
  }
  return slices;
}

// Of every list, the groups of the ranks that stand at the same place of its `count` slices.
std::vector<RankList> AcrossSlices(const std::vector<RankList>& lists, int count) {
  std::vector<RankList> groups;
  for (const RankList& list : lists) {
    const size_t length = list.size() / count;
    for (size_t place = 0; place < length; ++place) {
      RankList& group = groups.emplace_back();
      for (size_t at = place; at < list.size(); at += length) {
        group.push_back(list[at]);
      }
    }
  }
  return groups;
}

// `count` neighbouring lists put together, in order. Members are not sorted: group rank is position.
std::vector<RankList> Concatenated(const std::vector<RankList>& lists, int count) {
  std::vector<RankList> groups;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (i % count == 0) {
      groups.emplace_back();
    }
    groups.back().insert(groups.back().end(), lists[i].begin(), lists[i].end());
  }
  return groups;
}

// Ranks that together hold one copy of the optimizer's state.
std::vector<RankList> OptimizerGroups(const Grids& grids, const GridSizes& sizes) {
  return Concatenated(grids.expert.Groups("tp-ep-pp"), grids.expert_data / sizes.replicas);
}

std::vector<RankList> PipelineEnds(const std::vector<RankList>& pipelines, bool last) {
  std::vector<RankList> ends;
  for (const RankList& pipeline : pipelines) {
    ends.push_back({pipeline.front()});
    if (last) {
      ends.back().push_back(pipeline.back());
    }
  }
  return ends;
}

// A collection under construction.
class Collection {
 public:
  void Add(const std::string& name, const std::vector<RankList>& lists) {
    for (const RankList& list : lists) {
      groups_.push_back({.name = name, .ranks = list});
    }
  }

  // Unless every group would have one rank.
  void AddUnlessAlone(const std::string& name, const std::vector<RankList>& lists) {
    if (std::any_of(lists.begin(), lists.end(), [](const RankList& list) { return list.size() > 1; })) {
      Add(name, lists);
    }
  }

  // Copies the member lists of live groups: worked out again they could differ.
  void AddClone(const std::string& name, const std::string& of) {
    for (size_t i = 0, size = groups_.size(); i < size; ++i) {
      if (groups_[i].name == of) {
        groups_.push_back({.name = name, .ranks = groups_[i].ranks, .clone_of = static_cast<int>(i)});
      }
    }
  }

  void AddOfAll(const std::string& name, const GridSizes& sizes) {
    RankList all(sizes.world);
    std::iota(all.begin(), all.end(), sizes.rank_offset);
    Add(name, {all});
  }

  std::vector<Group> Take() { return std::move(groups_); }

 private:
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::vector<Group>> BuildProcessGroups(const GridSizes& sizes) {
  const absl::StatusOr<Grids> grids = MakeGrids(sizes);
  if (!grids.ok()) {
    return grids.status();
  }
  const std::vector<RankList> data = grids->dense.Groups("dp-cp");
  Collection collection;
  collection.Add("dp_cp", data);
  if (sizes.replicas > 1) {
    collection.Add("intra_dp_cp", Slices(data, sizes.replicas));
  }
  // Gathers run in the group that shards: with replicas, the inner one.
  collection.AddClone("dp_cp_ag", sizes.replicas > 1 ? "intra_dp_cp" : "dp_cp");
  if (sizes.replicas > 1) {
    collection.Add("inter_dist_opt", AcrossSlices(data, sizes.replicas));
  }
  collection.Add("intra_dist_opt", OptimizerGroups(*grids, sizes));
  if (sizes.replicas > 1) {
    collection.AddOfAll("world", sizes);
  }
  collection.AddOfAll("report", sizes);
  return collection.Take();
}

absl::StatusOr<std::vector<Group>> AllProcessGroups(const GridSizes& sizes) {
  const absl::StatusOr<Grids> grids = MakeGrids(sizes);
  if (!grids.ok()) {
    return grids.status();
  }
  const RankGrid& dense = grids->dense;
  const RankGrid& expert = grids->expert;
  Collection collection;
  collection.Add("dp_cp", dense.Groups("dp-cp"));
  if (sizes.replicas > 1) {
    collection.Add("intra_dp_cp", Slices(dense.Groups("dp-cp"), sizes.replicas));
  }
  collection.AddClone("dp_cp_ag", sizes.replicas > 1 ? "intra_dp_cp" : "dp_cp");
  collection.AddUnlessAlone("dp", dense.Groups("dp"));
  collection.AddUnlessAlone("cp", dense.Groups("cp"));
  collection.AddUnlessAlone("mp", dense.Groups("tp-pp"));
  collection.AddUnlessAlone("tp", dense.Groups("tp"));
  if (sizes.pipeline > 1) {
    collection.Add("pp", dense.Groups("pp"));
    collection.Add("embd", PipelineEnds(dense.Groups("pp"), /*last=*/true));
    collection.Add("pos_embd", PipelineEnds(dense.Groups("pp"), /*last=*/false));
  }
  collection.AddUnlessAlone("tp_dp_cp", dense.Groups("tp-dp-cp"));
  collection.AddUnlessAlone("tp_dp", dense.Groups("tp-dp"));
  collection.AddUnlessAlone("tp_cp", dense.Groups("tp-cp"));
  collection.AddUnlessAlone("ep", expert.Groups("ep"));
  collection.AddUnlessAlone("expt_tp", expert.Groups("tp"));
  collection.AddUnlessAlone("tp_ep", expert.Groups("tp-ep"));
  collection.AddUnlessAlone("tp_ep_pp", expert.Groups("tp-ep-pp"));
  collection.AddUnlessAlone("expt_dp", expert.Groups("dp"));
  if (sizes.replicas > 1) {
    collection.Add("intra_expt_dp", Slices(expert.Groups("dp"), sizes.replicas));
    collection.Add("inter_dist_opt", AcrossSlices(expert.Groups("dp"), sizes.replicas));
  }
  if (sizes.expert > 1) {
    collection.AddClone("expt_dp_ag", sizes.replicas > 1 ? "intra_expt_dp" : "expt_dp");
  }
  collection.Add("intra_dist_opt", OptimizerGroups(*grids, sizes));
  collection.AddOfAll("report", sizes);
  return collection.Take();
}

}  // namespace tandem::parallel
