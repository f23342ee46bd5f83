#include "parallel/rank_lists.h"

#include <cstddef>

#include "platform/check.h"

namespace tandem::parallel {

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

std::vector<RankList> Concatenated(const std::vector<RankList>& lists, int count) {
  TANDEM_CHECK(count > 0 && lists.size() % count == 0, "as many lists go into every group");
  std::vector<RankList> groups;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (i % count == 0) {
      groups.emplace_back();
    }
    groups.back().insert(groups.back().end(), lists[i].begin(), lists[i].end());
  }
  return groups;
}

std::vector<RankList> Ends(const std::vector<RankList>& lists) {
  std::vector<RankList> ends;
  for (const RankList& list : lists) {
    ends.push_back({list.front()});
    if (list.size() > 1) {
      ends.back().push_back(list.back());
    }
  }
  return ends;
}

std::vector<RankList> Firsts(const std::vector<RankList>& lists) {
  std::vector<RankList> firsts;
  for (const RankList& list : lists) {
    firsts.push_back({list.front()});
  }
  return firsts;
}

}  // namespace tandem::parallel
