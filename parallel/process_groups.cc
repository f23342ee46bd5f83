// SPDX-License-Identifier: Apache-2.0
#include "parallel/process_groups.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/check.h"
#include "platform/status_macros.h"

namespace tandem::parallel {
namespace {

using Lists = std::vector<RankList>;

Lists DenseData(const Grids& grids) { return grids.dense.Groups("dp-cp"); }
Lists ExpertData(const Grids& grids) { return grids.expert.Groups("dp"); }

// Inner returns the ranks of each copy of the sharded state; Outer the ranks that have the same shard of it.
Lists Inner(const Lists& data, int replicas) {
  return SplitLevel(data, static_cast<int>(data.front().size()) / replicas, 1);
}

Lists Outer(const Lists& data, int replicas) {
  return replicas == 1 ? Lists()
                       : SplitLevel(data, replicas, static_cast<int>(data.front().size()) / replicas);
}

// Concatenates each `count` neighbouring lists in order. Members are not sorted: their positions are their
// group ranks. `count` must divide the number of lists.
Lists Concatenated(const Lists& lists, int count) {
  TANDEM_CHECK(count > 0 && lists.size() % count == 0, "as many lists go into every group");
  Lists groups;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (i % count == 0) {
      groups.emplace_back();
    }
    groups.back().insert(groups.back().end(), lists[i].begin(), lists[i].end());
  }
  return groups;
}

// Returns the first member of every list, and its last member if there are two or more.
Lists Ends(const Lists& lists) {
  Lists ends;
  for (const RankList& list : lists) {
    ends.push_back({list.front()});
    if (list.size() > 1) {
      ends.back().push_back(list.back());
    }
  }
  return ends;
}

Lists Firsts(const Lists& lists) {
  Lists firsts;
  for (const RankList& list : lists) {
    firsts.push_back({list.front()});
  }
  return firsts;
}

Lists World(const Grids& grids) {
  RankList all(grids.sizes.world);
  std::iota(all.begin(), all.end(), grids.sizes.rank_offset);
  return {all};
}

// One name of the table below. Clones have `clone_of`; hcp and link have neither function; all others have
// `lists`.
struct Row {
  const char* name;
  const char* purpose;
  Lists (*lists)(const Grids&);           // returns no lists if the sizes give the name no meaning
  const char* (*clone_of)(const Grids&);  // returns null in that case
};

// Parameters are gathered over the ranks that share them; with replicas, over one replica's. A clone copies
// the members of its parent: computed again, they could differ.
const char* DenseGathers(const Grids& grids) {
  return !grids.sizes.separate_all_gather ? nullptr : grids.sizes.replicas > 1 ? "intra_dp_cp" : "dp_cp";
}

const char* ExpertGathers(const Grids& grids) {
  return !grids.sizes.separate_all_gather || grids.sizes.expert == 1 ? nullptr
         : grids.sizes.replicas > 1                                  ? "intra_expt_dp"
                                                                     : "expt_dp";
}

constexpr char kLevels[] = "hcp";
constexpr char kLinks[] = "link";

// In creation order.
constexpr Row kRows[] = {
    {"dp_cp", "dense gradients and shards", DenseData, nullptr},
    {"intra_dp_cp", "one replica of dense shards",
     [](const Grids& grids) { return Inner(DenseData(grids), grids.sizes.replicas); }, nullptr},
    {"inter_dp_cp", "replicas of a dense shard",
     [](const Grids& grids) { return Outer(DenseData(grids), grids.sizes.replicas); }, nullptr},
    {"dp_cp_ag", "gathers of dense parameters", nullptr, DenseGathers},
    {"dp", "data, without context", [](const Grids& grids) { return grids.dense.Groups("dp"); }, nullptr},
    {"cp", "context-parallel attention", [](const Grids& grids) { return grids.dense.Groups("cp"); },
     nullptr},
    {kLevels, "levels of a context group", nullptr, nullptr},
    {"mp", "one copy of the dense model", [](const Grids& grids) { return grids.dense.Groups("tp-pp"); },
     nullptr},
    {"tp", "tensor parallelism", [](const Grids& grids) { return grids.dense.Groups("tp"); }, nullptr},
    {"pp", "pipeline stages", [](const Grids& grids) { return grids.dense.Groups("pp"); }, nullptr},
    {kLinks, "one direction between two stages", nullptr, nullptr},
    {"embd", "tied embedding and head", [](const Grids& grids) { return Ends(grids.dense.Groups("pp")); },
     nullptr},
    {"pos_embd", "position embedding", [](const Grids& grids) { return Firsts(grids.dense.Groups("pp")); },
     nullptr},
    {"tp_dp_cp", "all but the pipeline", [](const Grids& grids) { return grids.dense.Groups("tp-dp-cp"); },
     nullptr},
    {"tp_dp", "tensor and data", [](const Grids& grids) { return grids.dense.Groups("tp-dp"); }, nullptr},
    {"tp_cp", "tensor and context", [](const Grids& grids) { return grids.dense.Groups("tp-cp"); }, nullptr},
    {"ep", "exchange of tokens between experts", [](const Grids& grids) { return grids.expert.Groups("ep"); },
     nullptr},
    {"expt_tp", "tensor parallelism of experts", [](const Grids& grids) { return grids.expert.Groups("tp"); },
     nullptr},
    {"tp_ep", "one layer's experts", [](const Grids& grids) { return grids.expert.Groups("tp-ep"); },
     nullptr},
    {"tp_ep_pp", "one copy of all experts",
     [](const Grids& grids) { return grids.expert.Groups("tp-ep-pp"); }, nullptr},
    {"expt_dp", "expert gradients and shards", ExpertData, nullptr},
    {"intra_expt_dp", "one replica of expert shards",
     [](const Grids& grids) { return Inner(ExpertData(grids), grids.sizes.replicas); }, nullptr},
    {"inter_dist_opt", "replicas of an expert shard",
     [](const Grids& grids) { return Outer(ExpertData(grids), grids.sizes.replicas); }, nullptr},
    {"expt_dp_ag", "gathers of expert parameters", nullptr, ExpertGathers},
    {"intra_dist_opt", "norms; one copy of the optimizer state",
     [](const Grids& grids) {
       return Concatenated(grids.expert.Groups("tp-ep-pp"), grids.expert_data / grids.sizes.replicas);
     },
     nullptr},
    {"world", "norms, where there are replicas", World, nullptr},
    {"report", "reports, between hosts", World, nullptr},
};

void AddLevels(const Grids& grids, std::vector<GroupKind>& kinds) {
  int stride = 1;
  for (size_t level = 0; level < grids.sizes.context_levels.size(); ++level) {
    const int size = grids.sizes.context_levels[level];
    kinds.push_back({.name = absl::StrCat(kLevels, "[", level, "]"),
                     .groups = SplitLevel(grids.dense.Groups("cp"), size, stride)});
    stride *= size;
  }
}

// The links of each stage, from and to, values before gradients. Values go to the next stage, and if a rank
// has several chunks, from the last stage to the first; gradients go back.
void AddLinks(const Grids& grids, std::vector<GroupKind>& kinds) {
  const int stages = grids.sizes.pipeline;
  const Lists pipelines = grids.dense.Groups("pp");
  const auto goes_on = [&](int from, int to) {
    return to == (from + 1) % stages && (to > 0 || grids.sizes.virtual_pipeline > 1);
  };
  const auto add = [&](int from, int to, const char* what) {
    GroupKind kind{.name = absl::StrCat("pp/", from, "-", to, "/", what)};
    for (const RankList& pipeline : pipelines) {
      kind.groups.push_back({pipeline[from], pipeline[to]});
    }
    kinds.push_back(std::move(kind));
  };
  for (int from = 0; from < stages && stages > 1; ++from) {
    for (int to = 0; to < stages; ++to) {
      if (goes_on(from, to)) {
        add(from, to, "values");
      }
      if (goes_on(to, from)) {
        add(from, to, "gradients");
      }
    }
  }
}

const GroupKind* FindIn(const std::vector<GroupKind>& kinds, std::string_view name) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const GroupKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

// Returns the names, and the names of the groups that these are clones of.
std::vector<std::string> WithParents(const Grids& grids, std::vector<std::string> names) {
  for (const Row& row : kRows) {
    const bool wanted = std::find(names.begin(), names.end(), row.name) != names.end();
    if (const char* parent = wanted && row.clone_of != nullptr ? row.clone_of(grids) : nullptr) {
      names.push_back(parent);
    }
  }
  return names;
}

}  // namespace

const std::vector<GroupName>& GroupNames() {
  static const std::vector<GroupName>& names = *new std::vector<GroupName>([] {
    std::vector<GroupName> all;
    for (const Row& row : kRows) {
      all.push_back({row.name, row.purpose});
    }
    return all;
  }());
  return names;
}

absl::StatusOr<ProcessGroups> ProcessGroups::Make(const GridSizes& sizes) {
  std::vector<std::string> names;
  for (const GroupName& name : GroupNames()) {
    names.push_back(name.name);
  }
  return Make(sizes, names);
}

absl::StatusOr<ProcessGroups> ProcessGroups::Make(const GridSizes& sizes,
                                                  const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::none_of(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the requested groups are invalid: there is no \"", name, "\"; there are ",
          absl::StrJoin(kRows, ", ",
                        [](std::string* out, const Row& row) { absl::StrAppend(out, row.name); })));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const Grids grids, MakeGrids(sizes));
  const std::vector<std::string> wanted = WithParents(grids, names);
  std::vector<GroupKind> kinds;
  for (const Row& row : kRows) {
    if (std::find(wanted.begin(), wanted.end(), row.name) == wanted.end()) {
      continue;
    }
    if (row.lists != nullptr) {
      if (Lists lists = row.lists(grids); !lists.empty()) {
        kinds.push_back({.name = row.name, .groups = std::move(lists)});
      }
    } else if (row.clone_of == nullptr) {
      row.name == std::string_view(kLevels) ? AddLevels(grids, kinds) : AddLinks(grids, kinds);
    } else if (const char* parent = row.clone_of(grids)) {
      kinds.push_back({.name = row.name, .groups = FindIn(kinds, parent)->groups, .clone_of = parent});
    }
  }
  return ProcessGroups(std::move(kinds));
}

const GroupKind* ProcessGroups::Find(std::string_view name) const { return FindIn(kinds_, name); }

}  // namespace tandem::parallel
