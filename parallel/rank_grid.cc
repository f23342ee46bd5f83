#include "parallel/rank_grid.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/check.h"

namespace tandem::parallel {
namespace {

const std::vector<std::string>& AxisNames() {
  static const std::vector<std::string> names = {"tp", "cp", "ep", "dp", "pp"};
  return names;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseOrder(std::string_view order) {
  std::vector<std::string> names;
  const std::string lower = absl::AsciiStrToLower(std::string(order));
  for (const auto token : absl::StrSplit(lower, '-')) {
    const std::string name(token);
    if (!Contains(AxisNames(), name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name.empty() ? "an empty name" : name, " is none of them"));
    }
    if (Contains(names, name)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is there twice"));
    }
    names.push_back(name);
  }
  return names;
}

absl::StatusOr<RankGrid> RankGrid::Make(const Sizes& sizes, std::string_view order, int offset) {
  absl::StatusOr<std::vector<std::string>> names = ParseOrder(order);
  if (!names.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("order: ", std::string(order),
                                                   " is not allowed; allowed: ", kAllowedOrder, "; ",
                                                   names.status().message()));
  }
  if (sizes.ep > 1 && sizes.cp > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("one grid cannot have both ep ", sizes.ep, " and cp ", sizes.cp));
  }
  const auto size_of = [&](const std::string& name) {
    return name == "tp"   ? sizes.tp
           : name == "cp" ? sizes.cp
           : name == "ep" ? sizes.ep
           : name == "dp" ? sizes.dp
                          : sizes.pp;
  };
  for (const std::string& name : AxisNames()) {
    if (size_of(name) < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has size ", size_of(name), ", must be ≥ 1"));
    }
    if (!Contains(*names, name)) {
      if (size_of(name) > 1) {
        return absl::InvalidArgumentError(absl::StrCat("order ", std::string(order), " leaves out ", name,
                                                       ", whose size is ", size_of(name)));
      }
      names->push_back(name);
    }
  }
  if (offset < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the first rank is ", offset, ", must be ≥ 0"));
  }
  RankGrid grid;
  grid.offset_ = offset;
  int64_t stride = 1;
  for (const std::string& name : *names) {
    grid.axes_.push_back({.name = name, .size = size_of(name), .stride = static_cast<int>(stride)});
    stride *= size_of(name);
    if (stride > std::numeric_limits<int>::max() - offset) {
      return absl::InvalidArgumentError("the grid has more ranks than can be counted");
    }
  }
  grid.num_ranks_ = static_cast<int>(stride);
  return grid;
}

std::vector<RankList> RankGrid::Groups(std::string_view axes) const {
  const absl::StatusOr<std::vector<std::string>> query = ParseOrder(axes);
  TANDEM_CHECK(query.ok(), "a query names axes of the grid");
  // Offsets of all combinations of indices along the axes that are, or are not, in the query.
  const auto offsets = [&](bool in_query) {
    RankList result = {0};
    for (const Axis& axis : axes_) {
      if (Contains(*query, axis.name) != in_query) {
        continue;
      }
      RankList longer;
      for (int index = 0; index < axis.size; ++index) {
        for (const int base : result) {
          longer.push_back(base + index * axis.stride);
        }
      }
      result = std::move(longer);
    }
    return result;
  };
  const RankList members = offsets(true);
  std::vector<RankList> groups;
  for (const int base : offsets(false)) {
    RankList& group = groups.emplace_back();
    for (const int member : members) {
      group.push_back(offset_ + base + member);
    }
  }
  return groups;
}

}  // namespace tandem::parallel
