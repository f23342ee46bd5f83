// SPDX-License-Identifier: Apache-2.0
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
      return absl::InvalidArgumentError(absl::StrCat(name, " is listed twice"));
    }
    names.push_back(name);
  }
  return names;
}

RankGrid::RankGrid(const Sizes& sizes, std::string_view order, int offset) : offset_(offset) {
  absl::StatusOr<std::vector<std::string>> names = ParseOrder(order);
  TANDEM_CHECK(names.ok(), "an order names axes, each once");
  TANDEM_CHECK(sizes.ep == 1 || sizes.cp == 1, "experts have a grid of their own");
  TANDEM_CHECK(offset >= 0, "ranks count from 0");
  const auto size_of = [&](const std::string& name) {
    return name == "tp"   ? sizes.tp
           : name == "cp" ? sizes.cp
           : name == "ep" ? sizes.ep
           : name == "dp" ? sizes.dp
                          : sizes.pp;
  };
  for (const std::string& name : AxisNames()) {
    TANDEM_CHECK(size_of(name) >= 1, "every axis has a size");
    if (!Contains(*names, name)) {
      TANDEM_CHECK(size_of(name) == 1, "the order has every axis that is long");
      names->push_back(name);
    }
  }
  int64_t stride = 1;
  for (const std::string& name : *names) {
    axes_.push_back({.name = name, .size = size_of(name), .stride = static_cast<int>(stride)});
    stride *= size_of(name);
    TANDEM_CHECK(stride <= std::numeric_limits<int>::max() - offset, "ranks can be counted");
  }
}

const RankGrid::Axis& RankGrid::AxisNamed(std::string_view name) const {
  const auto axis = std::find_if(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.name == name; });
  TANDEM_CHECK(axis != axes_.end(), "the grid has all axes");
  return *axis;
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

std::vector<RankList> SplitLevel(const std::vector<RankList>& lists, int size, int stride) {
  std::vector<RankList> groups;
  const size_t block = static_cast<size_t>(size) * stride;
  for (const RankList& list : lists) {
    TANDEM_CHECK(block > 0 && list.size() % block == 0, "a level divides its lists");
    for (size_t begin = 0; begin < list.size(); begin += block) {
      for (size_t first = begin; first < begin + stride; ++first) {
        RankList& group = groups.emplace_back();
        for (size_t at = first; at < begin + block; at += stride) {
          group.push_back(list[at]);
        }
      }
    }
  }
  return groups;
}

}  // namespace tandem::parallel
