#include "schedules/passes/periodic_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "schedules/passes/frontier.h"

namespace tandem::schedules {
namespace {

constexpr size_t kLongestPeriod = 3000;          // buffers
constexpr int kMostRepetitions = 3;              // microbatches that one period may span
constexpr size_t kImprovementWork = 10'000'000;  // pairs of buffers that are compared

// Of what is placed, with ascending begins, the lowest begin of so many bytes that nothing refuses.
template <typename Refuses>
int64_t LowestGap(const std::vector<Owned>& placed, int64_t bytes, Refuses refuses) {
  int64_t at = 0;
  for (const Owned& next : placed) {
    if (next.begin >= at + bytes) {
      break;
    }
    if (next.end > at && refuses(next.owner)) {
      at = next.end;
    }
  }
  return at;
}

void Insert(const Owned& owned, std::vector<Owned>& placed) {
  placed.insert(std::upper_bound(placed.begin(), placed.end(), owned.begin,
                                 [](int64_t begin, const Owned& other) { return begin < other.begin; }),
                owned);
}

class PeriodicLayout {
 public:
  PeriodicLayout(const AccessOrder& order, const std::vector<BufferId>& buffers,
                 const std::vector<int64_t>& bytes)
      : order_(order), buffers_(buffers), bytes_(bytes) {}

  RegionLayout Run() {
    RegionLayout layout{.begins = std::vector<int64_t>(bytes_.size(), -1),
                        .end = std::numeric_limits<int64_t>::max()};
    if (!FindPeriod()) {
      return layout;
    }
    FindResidents();
    LayOutPeriod();
    if (!LayOutAll(layout)) {
      layout.end = std::numeric_limits<int64_t>::max();
    }
    return layout;
  }

 private:
  bool AreAlike(size_t i, size_t j) const { return order_.AreAlike(buffers_[i], buffers_[j]); }

  // Around the middle of the program: the shortest distance after which everything repeats itself, and as
  // many of these as it takes for a buffer to have ended when its like begins.
  bool FindPeriod() {
    const size_t count = buffers_.size();
    const size_t middle = count / 2;
    size_t distance = 0;
    for (size_t d = 1; d <= kLongestPeriod && middle + 2 * d < count && distance == 0; ++d) {
      if (AreAlike(middle, middle + d)) {
        size_t same = 1;
        while (same < d && AreAlike(middle + same, middle + same + d)) {
          ++same;
        }
        distance = same == d ? d : 0;
      }
    }
    if (distance == 0) {
      return false;
    }
    first_ = middle;
    while (first_ > 0 && AreAlike(first_ - 1, first_ - 1 + distance)) {
      --first_;
    }
    last_ = middle + distance;
    while (last_ + 1 < count && AreAlike(last_ + 1 - distance, last_ + 1)) {
      ++last_;
    }
    for (int repetitions = 1; repetitions <= kMostRepetitions; ++repetitions) {
      period_ = repetitions * distance;
      if (period_ > kLongestPeriod || first_ + 2 * period_ > last_ + 1) {
        return false;
      }
      // As late as possible: what the step starts with has passed.
      start_ = std::min(middle, last_ + 1 - 2 * period_);
      bool apart = true;
      for (size_t i = start_; i < start_ + period_ && apart; ++i) {
        apart = order_.Before(buffers_[i], buffers_[i + period_]);
      }
      if (apart) {
        return true;
      }
    }
    return false;
  }

  // In no two consecutive periods.
  bool MayShare(size_t i, size_t j) const {
    return order_.MayShare(buffers_[i], buffers_[j]) && order_.MayShare(buffers_[i], buffers_[j + period_]) &&
           order_.MayShare(buffers_[i + period_], buffers_[j]);
  }

  // Below the period lies what is there throughout: parameters that are kept, full gradients.
  void FindResidents() {
    const int begin = order_.first(buffers_[start_]);
    const int end = order_.first(buffers_[start_ + period_]);
    for (const BufferId buffer : buffers_) {
      if (order_.first(buffer) < begin && order_.last(buffer) >= end) {
        residents_.push_back(buffer);
      }
    }
  }

  double Area(BufferId buffer) const {
    return static_cast<double>(bytes_[buffer]) * (order_.last(buffer) - order_.first(buffer) + 1);
  }

  void LayOutPeriod() {
    std::vector<size_t> placing(period_);
    std::iota(placing.begin(), placing.end(), start_);
    int64_t best = std::numeric_limits<int64_t>::max();
    std::vector<int64_t> begins(period_);
    const int improvements = static_cast<int>(kImprovementWork / (period_ * period_));
    const auto by_area = [&](size_t i, size_t j) { return Area(buffers_[i]) > Area(buffers_[j]); };
    const auto by_size = [&](size_t i, size_t j) { return bytes_[buffers_[i]] > bytes_[buffers_[j]]; };
    for (const bool size_first : {true, false}) {
      std::stable_sort(placing.begin(), placing.end(), by_area);
      if (size_first) {
        std::stable_sort(placing.begin(), placing.end(), by_size);
      }
      // The buffer that ends highest found no lower gap: it is placed earlier.
      for (int step = 0; step <= improvements; ++step) {
        const int64_t end = Place(placing, begins);
        if (end < best) {
          best = end;
          begins_ = begins;
        }
        const auto highest = std::find_if(placing.begin(), placing.end(), [&](size_t i) {
          return begins[i - start_] + bytes_[buffers_[i]] == end;
        });
        std::rotate(placing.begin() + (highest - placing.begin()) / 2, highest, highest + 1);
      }
    }
  }

  // Into the lowest gap each; returns where the layout ends.
  int64_t Place(const std::vector<size_t>& placing, std::vector<int64_t>& begins) const {
    std::vector<Owned> placed;  // the owner is an index
    int64_t layout_end = 0;
    for (const size_t i : placing) {
      const int64_t bytes = bytes_[buffers_[i]];
      const int64_t at =
          LowestGap(placed, bytes, [&](int other) { return !MayShare(static_cast<size_t>(other), i); });
      begins[i - start_] = at;
      layout_end = std::max(layout_end, at + bytes);
      Insert({at, at + bytes, static_cast<BufferId>(i)}, placed);
    }
    return layout_end;
  }

  // Residents, then what repeats itself, then the rest around them. False: the rest is too much.
  bool LayOutAll(RegionLayout& layout) const {
    layout.end = 0;
    const auto put = [&](BufferId buffer, int64_t at) {
      layout.begins[buffer] = at;
      layout.end = std::max(layout.end, at + bytes_[buffer]);
    };
    std::vector<Owned> placed;
    for (const BufferId buffer : residents_) {
      const int64_t at = layout.end;
      put(buffer, at);
      Insert({at, at + bytes_[buffer], buffer}, placed);
    }
    const int64_t base = layout.end;
    Frontier frontier;
    std::vector<BufferId> rest;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const BufferId buffer = buffers_[i];
      if (layout.begins[buffer] >= 0) {
        continue;
      }
      if (i < first_ || i > last_) {
        rest.push_back(buffer);
        continue;
      }
      const int64_t at = base + begins_[(i + period_ - start_ % period_) % period_];
      const int64_t end = at + bytes_[buffer];
      if (frontier.FirstRefused(at, end, [&](BufferId owner) { return !order_.Before(owner, buffer); }) >=
          0) {
        rest.push_back(buffer);
        continue;
      }
      frontier.Take(buffer, at, end);
      put(buffer, at);
      placed.push_back({at, end, buffer});
    }
    if (rest.size() > kLongestPeriod) {
      return false;
    }
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Owned& a, const Owned& b) { return a.begin < b.begin; });
    std::stable_sort(rest.begin(), rest.end(), [&](BufferId a, BufferId b) { return Area(a) > Area(b); });
    for (const BufferId buffer : rest) {
      const int64_t at =
          LowestGap(placed, bytes_[buffer], [&](BufferId other) { return !order_.MayShare(other, buffer); });
      put(buffer, at);
      Insert({at, at + bytes_[buffer], buffer}, placed);
    }
    return true;
  }

  const AccessOrder& order_;
  const std::vector<BufferId>& buffers_;
  const std::vector<int64_t>& bytes_;
  size_t first_ = 0;  // what repeats itself, by index of buffers_; inclusive
  size_t last_ = 0;
  size_t period_ = 0;
  size_t start_ = 0;             // of the period that is laid out
  std::vector<int64_t> begins_;  // by index from start_
  std::vector<BufferId> residents_;
};

}  // namespace

RegionLayout LayOutPeriodically(const AccessOrder& order, const std::vector<BufferId>& buffers,
                                const std::vector<int64_t>& bytes) {
  return PeriodicLayout(order, buffers, bytes).Run();
}

}  // namespace tandem::schedules
