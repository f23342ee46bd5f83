// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/grid_sizes.h"

namespace tandem::parallel::test {

using Lists = std::vector<RankList>;
using Names = std::vector<std::string>;
using Key = std::vector<int>;

// A second implementation of the groups, without strides and slices: every rank has coordinates on both
// grids, and ranks are in one group if they have equal coordinates on the axes along which the group does not
// vary.
class CoordinateReference {
 public:
  explicit CoordinateReference(const GridSizes& sizes, const Names& order) : sizes_(sizes), order_(order) {
    const int expert_tensor = sizes.expert_tensor == 0 ? sizes.tensor : sizes.expert_tensor;
    dense_ = {{"tp", sizes.tensor}, {"cp", sizes.context}, {"ep", 1}, {"pp", sizes.pipeline}};
    expert_ = {{"tp", expert_tensor}, {"cp", 1}, {"ep", sizes.expert}, {"pp", sizes.pipeline}};
    for (std::map<std::string, int>* axes : {&dense_, &expert_}) {
      int model = 1;
      for (const auto& [name, size] : *axes) {
        model *= size;
      }
      fits_ = fits_ && sizes.world % model == 0;
      (*axes)["dp"] = sizes.world / model;
      for (const auto& [name, size] : *axes) {
        fits_ = fits_ && (size == 1 || std::find(order.begin(), order.end(), name) != order.end());
      }
    }
    fits_ =
        fits_ && dense_["dp"] * sizes.context % sizes.replicas == 0 && expert_["dp"] % sizes.replicas == 0;
    fits_ = fits_ && (sizes.pipeline == 1 || (Varying(dense_, {"pp"}) == Varying(expert_, {"pp"}) &&
                                              (order.back() == "pp" || dense_["dp"] == expert_["dp"])));
  }

  bool fits() const { return fits_; }

  std::map<std::string, Lists> All() {
    std::map<std::string, Lists> all = {{"dp_cp", Varying(dense_, {"dp", "cp"})},
                                        {"dp", Varying(dense_, {"dp"})},
                                        {"cp", Varying(dense_, {"cp"})},
                                        {"mp", Varying(dense_, {"tp", "pp"})},
                                        {"tp", Varying(dense_, {"tp"})},
                                        {"pp", Varying(dense_, {"pp"})},
                                        {"tp_dp_cp", Varying(dense_, {"tp", "dp", "cp"})},
                                        {"tp_dp", Varying(dense_, {"tp", "dp"})},
                                        {"tp_cp", Varying(dense_, {"tp", "cp"})},
                                        {"ep", Varying(expert_, {"ep"})},
                                        {"expt_tp", Varying(expert_, {"tp"})},
                                        {"tp_ep", Varying(expert_, {"tp", "ep"})},
                                        {"tp_ep_pp", Varying(expert_, {"tp", "ep", "pp"})},
                                        {"expt_dp", Varying(expert_, {"dp"})}};
    all["intra_dp_cp"] = Replica(dense_, {"dp", "cp"});
    all["intra_expt_dp"] = Replica(expert_, {"dp"});
    if (sizes_.replicas > 1) {
      all["inter_dp_cp"] = Across(dense_, {"dp", "cp"});
      all["inter_dist_opt"] = Across(expert_, {"dp"});
    }
    if (sizes_.separate_all_gather) {
      all["dp_cp_ag"] = all["intra_dp_cp"];
      if (sizes_.expert > 1) {
        all["expt_dp_ag"] = all["intra_expt_dp"];
      }
    }
    all["embd"] = Stages({0, sizes_.pipeline - 1});
    all["pos_embd"] = Stages({0});
    for (int stage = 0; stage + 1 < sizes_.pipeline; ++stage) {
      AddLink(stage, stage + 1, all);
    }
    if (sizes_.virtual_pipeline > 1) {
      AddLink(sizes_.pipeline - 1, 0, all);
    }
    // intra_dist_opt, one copy of the optimizer's state: the ranks at neighbouring positions on the experts'
    // dp axis, ordered by position.
    const int places = expert_["dp"] / sizes_.replicas;
    all["intra_dist_opt"] = Sorted(
        expert_, [&](auto& at) { return Key{at["dp"] / places}; }, [&](auto& at) { return Key{at["dp"]}; });
    all["world"] = all["report"] = Sorted(
        dense_, [](auto&) { return Key{}; }, [](auto&) { return Key{}; });
    return all;
  }

 private:
  using Axes = std::map<std::string, int>;

  // The coordinates of a rank.
  Axes At(const Axes& sizes, int rank) const {
    Axes at = {{"tp", 0}, {"cp", 0}, {"ep", 0}, {"dp", 0}, {"pp", 0}};
    for (const std::string& name : order_) {
      at[name] = rank % sizes.at(name);
      rank /= sizes.at(name);
    }
    return at;
  }

  // The coordinates on these axes as one number: the index in a group that varies along them.
  int Place(const Axes& sizes, Axes at, const Names& axes) const {
    int place = 0;
    int stride = 1;
    for (const std::string& name : order_) {
      if (std::find(axes.begin(), axes.end(), name) != axes.end()) {
        place += at[name] * stride;
        stride *= sizes.at(name);
      }
    }
    return place;
  }

  // Ranks with equal `group` keys are in one group, and groups are sorted by that key; members are sorted by
  // their `member` keys, then by rank.
  template <typename Group, typename Member>
  Lists Sorted(const Axes& sizes, const Group& group, const Member& member) const {
    std::map<Key, std::vector<std::pair<Key, int>>> groups;
    for (int rank = 0; rank < sizes_.world; ++rank) {
      Axes at = At(sizes, rank);
      groups[group(at)].push_back({member(at), rank + sizes_.rank_offset});
    }
    Lists lists;
    for (auto& [key, members] : groups) {
      std::sort(members.begin(), members.end());
      RankList& list = lists.emplace_back();
      for (const auto& [unused, rank] : members) {
        list.push_back(rank);
      }
    }
    return lists;
  }

  Names Others(const Names& axes) const {
    Names others;
    for (const std::string& name : order_) {
      if (std::find(axes.begin(), axes.end(), name) == axes.end()) {
        others.push_back(name);
      }
    }
    return others;
  }

  Lists Varying(const Axes& sizes, const Names& axes) const {
    return Sorted(
        sizes, [&](auto& at) { return Key{Place(sizes, at, Others(axes))}; }, [](auto&) { return Key{}; });
  }

  int InnerSize(const Axes& sizes, const Names& axes) const {
    int size = 1;
    for (const std::string& name : axes) {
      size *= sizes.at(name);
    }
    return size / sizes_.replicas;
  }

  Lists Replica(const Axes& sizes, const Names& axes) const {
    const int inner = InnerSize(sizes, axes);
    return Sorted(
        sizes,
        [&](auto& at) {
          return Key{Place(sizes, at, Others(axes)), Place(sizes, at, axes) / inner};
        },
        [](auto&) { return Key{}; });
  }

  Lists Across(const Axes& sizes, const Names& axes) const {
    const int inner = InnerSize(sizes, axes);
    return Sorted(
        sizes,
        [&](auto& at) {
          return Key{Place(sizes, at, Others(axes)), Place(sizes, at, axes) % inner};
        },
        [](auto&) { return Key{}; });
  }

  // Adds the group that carries values between two stages, and the group that carries their gradients back.
  void AddLink(int from, int to, std::map<std::string, Lists>& all) const {
    Lists forth = Stages({from, to});
    Lists back;
    for (RankList& ranks : forth) {
      RankList reversed(ranks.rbegin(), ranks.rend());
      back.push_back(reversed);
      if (At(dense_, ranks.front() - sizes_.rank_offset).at("pp") != from) {
        std::swap(ranks, back.back());
      }
    }
    const auto name = [](int a, int b) { return "pp/" + std::to_string(a) + "-" + std::to_string(b); };
    all[name(from, to) + "/values"] = forth;
    all[name(to, from) + "/gradients"] = back;
  }

  // Groups of ranks of these pipeline stages whose other coordinates are equal.
  Lists Stages(const std::set<int>& stages) const {
    std::map<int, RankList> groups;
    for (int rank = 0; rank < sizes_.world; ++rank) {
      Axes at = At(dense_, rank);
      if (stages.contains(at["pp"])) {
        groups[Place(dense_, at, Others({"pp"}))].push_back(rank + sizes_.rank_offset);
      }
    }
    Lists lists;
    for (const auto& [key, list] : groups) {
      lists.push_back(list);
    }
    return lists;
  }

  const GridSizes sizes_;
  const Names order_;
  Axes dense_;
  Axes expert_;
  bool fits_ = true;
};

}  // namespace tandem::parallel::test
