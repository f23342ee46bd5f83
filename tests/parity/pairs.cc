// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/pairs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tests/platform/seeded_random.h"

namespace tandem::parity {
namespace {

constexpr int kUnchosen = -1;
constexpr int kTries = 40;

// The pairs of values of two dimensions that no choice has yet.
class MissingPairs {
 public:
  explicit MissingPairs(const std::vector<int>& sizes) {
    for (const int size : sizes) {
      first_.push_back(num_values_);
      num_values_ += size;
    }
    missing_.assign(num_values_ * num_values_, false);
    for (size_t a = 0; a < sizes.size(); ++a) {
      for (size_t b = a + 1; b < sizes.size(); ++b) {
        for (int value = 0; value < sizes[a]; ++value) {
          for (int other = 0; other < sizes[b]; ++other) {
            missing_[Index(a, value, b, other)] = true;
            ++count_;
          }
        }
      }
    }
  }

  bool empty() const { return count_ == 0; }

  // Sets the two dimensions of one of them.
  void TakeAny(platform::SeededRandom& random, Choice& choice) const {
    size_t index = random.Next64() % missing_.size();
    while (!missing_[index]) {
      index = (index + 1) % missing_.size();
    }
    for (const size_t value : {index / num_values_, index % num_values_}) {
      const size_t dimension = std::upper_bound(first_.begin(), first_.end(), value) - first_.begin() - 1;
      choice[dimension] = static_cast<int>(value - first_[dimension]);
    }
  }

  // How many of them `choice` would have with `value` in the dimension, of those dimensions that are chosen.
  int CountWith(const Choice& choice, size_t dimension, int value) const {
    int count = 0;
    for (size_t other = 0; other < choice.size(); ++other) {
      if (other != dimension && choice[other] != kUnchosen) {
        count += missing_[Index(dimension, value, other, choice[other])] ? 1 : 0;
      }
    }
    return count;
  }

  int CountIn(const Choice& choice) const {
    int twice = 0;
    for (size_t dimension = 0; dimension < choice.size(); ++dimension) {
      twice += CountWith(choice, dimension, choice[dimension]);
    }
    return twice / 2;
  }

  void Erase(const Choice& choice) {
    count_ -= CountIn(choice);
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) {
        missing_[Index(a, choice[a], b, choice[b])] = false;
      }
    }
  }

 private:
  size_t Index(size_t a, int value, size_t b, int other) const {
    const size_t x = first_[a] + value;
    const size_t y = first_[b] + other;
    return std::min(x, y) * num_values_ + std::max(x, y);
  }

  std::vector<size_t> first_;  // dimension → number of its first value, of all dimensions' values
  size_t num_values_ = 0;
  std::vector<bool> missing_;
  int count_ = 0;
};

// One of the missing pairs, and then, dimension by dimension, the value that makes the most of the others.
Choice ChoiceFrom(const std::vector<int>& sizes, const MissingPairs& missing,
                  platform::SeededRandom& random) {
  Choice choice(sizes.size(), kUnchosen);
  missing.TakeAny(random, choice);
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t last = order.size() - 1; last > 0; --last) {
    std::swap(order[last], order[random.Next64() % (last + 1)]);
  }
  for (const size_t dimension : order) {
    if (choice[dimension] != kUnchosen) {
      continue;
    }
    const int first = static_cast<int>(random.Next64() % sizes[dimension]);
    int most = -1;
    for (int i = 0; i < sizes[dimension]; ++i) {
      const int value = (first + i) % sizes[dimension];
      if (const int count = missing.CountWith(choice, dimension, value); count > most) {
        most = count;
        choice[dimension] = value;
      }
    }
  }
  return choice;
}

}  // namespace

std::vector<Choice> AllChoices(const std::vector<int>& sizes) {
  std::vector<Choice> choices = {{}};
  for (const int size : sizes) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices) {
      for (int value = 0; value < size; ++value) {
        longer.push_back(choice);
        longer.back().push_back(value);
      }
    }
    choices = std::move(longer);
  }
  return choices;
}

std::vector<Choice> ChoicesThatCoverAllPairs(const std::vector<int>& sizes, uint64_t seed) {
  platform::SeededRandom random(seed);
  MissingPairs missing(sizes);
  std::vector<Choice> chosen;
  while (!missing.empty()) {
    Choice best = ChoiceFrom(sizes, missing, random);
    for (int i = 1; i < kTries; ++i) {
      Choice next = ChoiceFrom(sizes, missing, random);
      if (missing.CountIn(next) > missing.CountIn(best)) {
        best = std::move(next);
      }
    }
    missing.Erase(best);
    chosen.push_back(std::move(best));
  }
  return chosen;
}

}  // namespace tandem::parity
