#include "schedules/passes/periodic_layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "schedules/passes/frontier.h"

namespace tandem::schedules {
namespace {

constexpr size_t kLongestPeriod = 3000;  // buffers
constexpr int kMostRepetitions = 3;      // microbatches that one period may span

class PeriodicLayout {
 public:
  PeriodicLayout(const AccessOrder& order, const std::vector<BufferId>& buffers,
                 const std::vector<int64_t>& bytes)
      : order_(order), buffers_(buffers), bytes_(bytes) {}

  RegionLayout Run() {
    RegionLayout best{.begins = {}, .end = std::numeric_limits<int64_t>::max()};
    if (!FindPeriod()) {
      return best;
    }
    FindResidents();
    LayOutPeriod();
    RegionLayout layout{.begins = std::vector<int64_t>(bytes_.size(), -1)};
    std::vector<Owned> placed;
    std::vector<BufferId> rest = Repeat(layout, placed);
    if (rest.size() > kLongestPeriod) {
      return best;
    }
    const auto size = [&](BufferId buffer) { return static_cast<double>(bytes_[buffer]); };
    for (const bool by_area : {false, true}) {
      std::stable_sort(rest.begin(), rest.end(), [&](BufferId a, BufferId b) {
        return by_area ? size(a) * order_.Life(a) > size(b) * order_.Life(b) : size(a) > size(b);
      });
      RegionLayout filled = FillIn(rest, layout, placed);
      if (filled.end < best.end) {
        best = std::move(filled);
      }
    }
    return best;
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

  void LayOutPeriod() {
    Sizes sizes;
    for (size_t i = start_; i < start_ + period_; ++i) {
      sizes.bytes.push_back(bytes_[buffers_[i]]);
      sizes.lives.push_back(order_.Life(buffers_[i]));
    }
    begins_ = LayOutTogether(
                  sizes, [&](int i, int j) { return !MayShare(start_ + i, start_ + j); }, 0)
                  .begins;
  }

  void Put(BufferId buffer, int64_t at, RegionLayout& layout) const {
    layout.begins[buffer] = at;
    layout.end = std::max(layout.end, at + bytes_[buffer]);
  }

  // Residents, and above them what repeats itself. Returns what does not, or cannot lie where its like does.
  std::vector<BufferId> Repeat(RegionLayout& layout, std::vector<Owned>& placed) const {
    layout.end = 0;
    for (const BufferId buffer : residents_) {
      placed.push_back({layout.end, layout.end + bytes_[buffer], buffer});
      Put(buffer, layout.end, layout);
    }
    const int64_t base = layout.end;
    Frontier frontier;
    std::vector<BufferId> rest;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const BufferId buffer = buffers_[i];
      if (layout.begins[buffer] >= 0) {
        continue;
      }
      const int64_t at = base + begins_[(i + period_ - start_ % period_) % period_];
      const int64_t end = at + bytes_[buffer];
      const auto refuses = [&](BufferId owner) { return !order_.Before(owner, buffer); };
      if (i < first_ || i > last_ || frontier.FirstRefused(at, end, refuses) >= 0) {
        rest.push_back(buffer);
        continue;
      }
      frontier.Take(buffer, at, end);
      Put(buffer, at, layout);
      placed.push_back({at, end, buffer});
    }
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Owned& a, const Owned& b) { return a.begin < b.begin; });
    return rest;
  }

  // The rest goes into the lowest gaps around what is placed.
  RegionLayout FillIn(const std::vector<BufferId>& rest, RegionLayout layout,
                      std::vector<Owned> placed) const {
    for (const BufferId buffer : rest) {
      const int64_t at =
          LowestGap(placed, bytes_[buffer], [&](BufferId other) { return !order_.MayShare(other, buffer); });
      Put(buffer, at, layout);
      Insert({at, at + bytes_[buffer], buffer}, placed);
    }
    return layout;
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
