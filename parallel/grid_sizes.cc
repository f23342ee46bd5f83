// SPDX-License-Identifier: Apache-2.0
#include "parallel/grid_sizes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/check.h"

namespace tandem::parallel {
namespace {

constexpr int kMostRanks = 1 << 20;

GridSizes WithDefaults(GridSizes sizes) {
  if (sizes.expert_tensor == 0) {
    sizes.expert_tensor = sizes.tensor;
  }
  return sizes;
}

// Each size is at most 2^20, so a product of three does not overflow.
int64_t DenseModelRanks(const GridSizes& sizes) {
  return int64_t{sizes.tensor} * sizes.context * sizes.pipeline;
}

int64_t ExpertModelRanks(const GridSizes& sizes) {
  return int64_t{sizes.expert_tensor} * sizes.expert * sizes.pipeline;
}

// The sizes must divide the world.
Grids GridsOf(const GridSizes& sizes) {
  const int dense_data = static_cast<int>(sizes.world / DenseModelRanks(sizes));
  const int expert_data = static_cast<int>(sizes.world / ExpertModelRanks(sizes));
  return Grids{
      .sizes = sizes,
      .dense = RankGrid({.tp = sizes.tensor, .cp = sizes.context, .dp = dense_data, .pp = sizes.pipeline},
                        sizes.order, sizes.rank_offset),
      .expert =
          RankGrid({.tp = sizes.expert_tensor, .ep = sizes.expert, .dp = expert_data, .pp = sizes.pipeline},
                   sizes.order, sizes.rank_offset),
      .dense_data = dense_data,
      .expert_data = expert_data};
}

class GridChecker {
 public:
  explicit GridChecker(const GridSizes& sizes) : sizes_(WithDefaults(sizes)) {}

  std::vector<GridViolation> Run() {
    CheckSizes();
    if (!violations_.empty()) {
      return std::move(violations_);  // the checks that follow depend on these
    }
    CheckWorld();
    if (sizes_.virtual_pipeline > 1 && sizes_.pipeline == 1) {
      Refuse("virtual_pipeline", sizes_.virtual_pipeline, "1 where pipeline is 1",
             "a rank interleaves pieces of a pipeline: use pipeline > 1, or 1");
    }
    CheckContextLevels();
    CheckOrder();
    if (violations_.empty()) {
      CheckPipelines();
    }
    return std::move(violations_);
  }

 private:
  template <typename Value>
  void Refuse(const char* field, const Value& value, const std::string& allowed, const std::string& remedy) {
    violations_.push_back({field, absl::StrCat(value), allowed, remedy});
  }

  void CheckSizes() {
    const std::pair<const char*, int> all[] = {
        {"world", sizes_.world},       {"tensor", sizes_.tensor},
        {"context", sizes_.context},   {"pipeline", sizes_.pipeline},
        {"expert", sizes_.expert},     {"expert_tensor", sizes_.expert_tensor},
        {"replicas", sizes_.replicas}, {"virtual_pipeline", sizes_.virtual_pipeline}};
    for (const auto& [field, size] : all) {
      if (size < 1 || size > kMostRanks) {
        Refuse(field, size, absl::StrCat("1 to ", kMostRanks),
               size < 1 ? "use a larger number" : "use a smaller number");
      }
    }
    for (const int size : sizes_.context_levels) {
      if (size < 1 || size > kMostRanks) {
        Refuse("context_levels", size, absl::StrCat("1 to ", kMostRanks), "every level has a size");
      }
    }
    const int most = std::numeric_limits<int>::max() - kMostRanks;
    if (sizes_.rank_offset < 0 || sizes_.rank_offset > most) {
      Refuse("rank_offset", sizes_.rank_offset, absl::StrCat("0 to ", most), "it is the first rank");
    }
  }

  // Checks that the product of the sizes divides the world, and the replicas what is left.
  void CheckWorld() {
    const int64_t dense = DenseModelRanks(sizes_);
    if (sizes_.world % dense != 0) {
      Refuse("world", sizes_.world,
             absl::StrCat("a multiple of ", dense, " (tensor ", sizes_.tensor, " × context ", sizes_.context,
                          " × pipeline ", sizes_.pipeline, ")"),
             "change the number of ranks, or one of the others");
    }
    const int64_t expert = ExpertModelRanks(sizes_);
    if (sizes_.world % expert != 0 && expert != dense) {
      Refuse("world", sizes_.world,
             absl::StrCat("a multiple of ", expert, " (expert_tensor ", sizes_.expert_tensor, " × expert ",
                          sizes_.expert, " × pipeline ", sizes_.pipeline, ")"),
             "change the number of ranks, or one of the others");
    }
    if (!violations_.empty()) {
      return;
    }
    const int64_t dense_data = sizes_.world / dense * sizes_.context;
    const int64_t expert_data = sizes_.world / expert;
    if (dense_data % sizes_.replicas != 0) {
      Refuse("replicas", sizes_.replicas,
             absl::StrCat("a divisor of the ", dense_data, " data-parallel ranks (data × context)"),
             "they are split into that many equal groups");
    } else if (expert_data % sizes_.replicas != 0) {
      Refuse("replicas", sizes_.replicas,
             absl::StrCat("a divisor of the ", expert_data, " data-parallel ranks of an expert"),
             "they are split into that many equal groups");
    }
  }

  void CheckContextLevels() {
    const std::vector<int>& levels = sizes_.context_levels;
    int64_t product = 1;
    for (const int size : levels) {
      product = std::min<int64_t>(product * size, int64_t{kMostRanks} + 1);
    }
    if (!levels.empty() && product != sizes_.context) {
      Refuse("context_levels", absl::StrJoin(levels, " × "),
             absl::StrCat("sizes that multiply to context ", sizes_.context),
             "each level splits the groups of the next");
    }
  }

  void CheckOrder() {
    const absl::StatusOr<std::vector<std::string>> order = ParseOrder(sizes_.order);
    if (!order.ok()) {
      Refuse("order", sizes_.order, kAllowedOrder, std::string(order.status().message()));
      return;
    }
    const auto require = [&](const char* axis, int64_t ranks) {
      if (ranks > 1 && std::find(order->begin(), order->end(), axis) == order->end()) {
        Refuse("order", sizes_.order, kAllowedOrder,
               absl::StrCat(axis, " is missing, and there are ", ranks, " ranks along it"));
      }
    };
    require("tp", std::max(sizes_.tensor, sizes_.expert_tensor));
    require("cp", sizes_.context);
    require("ep", sizes_.expert);
    require("dp", std::max(sizes_.world / DenseModelRanks(sizes_), sizes_.world / ExpertModelRanks(sizes_)));
    require("pp", sizes_.pipeline);
  }

  void CheckPipelines() {
    if (sizes_.pipeline == 1) {
      return;
    }
    const Grids grids = GridsOf(sizes_);
    const bool pipeline_last = ParseOrder(sizes_.order)->back() == "pp";
    if (grids.dense.Groups("pp") != grids.expert.Groups("pp") ||
        (!pipeline_last && grids.dense_data != grids.expert_data)) {
      Refuse("order", sizes_.order, "an order in which experts have the pipelines of the dense layers",
             absl::StrCat("with tensor ", sizes_.tensor, ", context ", sizes_.context, ", expert ",
                          sizes_.expert, ", expert_tensor ", sizes_.expert_tensor, ", pipeline ",
                          sizes_.pipeline, " put pp last"));
    }
  }

  const GridSizes sizes_;
  std::vector<GridViolation> violations_;
};

}  // namespace

std::vector<GridViolation> CheckGrid(const GridSizes& sizes) { return GridChecker(sizes).Run(); }

std::string ToText(const GridViolation& violation) {
  return absl::StrCat(violation.field, ": ", violation.value, " is not allowed; allowed: ", violation.allowed,
                      "; ", violation.remedy);
}

absl::StatusOr<Grids> MakeGrids(const GridSizes& sizes) {
  const std::vector<GridViolation> violations = CheckGrid(sizes);
  if (!violations.empty()) {
    return absl::InvalidArgumentError(ToText(violations.front()));
  }
  return GridsOf(WithDefaults(sizes));
}

}  // namespace tandem::parallel
