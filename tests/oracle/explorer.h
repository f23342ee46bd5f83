// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/machine.h"

namespace tandem::oracle {

// A sequence of runs of one stage, in any order that the device and the host may take. An order must respect
// streams, waits, host waits, and what the executor ensures between runs: a run starts after the streams of
// the former run except those that copy to and from the host; run n has ended, and the host has read what it
// reported, before run n + 2 is issued.
//
// The explorer is a second opinion on the check. It knows what instructions do to bytes, but no rule about
// programs. Two items that are not ordered and touch the same bytes, at least one of them writing, are tried
// in both orders. If nothing conflicts, all orders are equal.
//
// Requires programs whose ids, parts and waits are in range.
class Explorer {
 public:
  Explorer(const schedules::Outline& outline, const schedules::BuildOptions& options,
           const schedules::StagePrograms& stage, std::vector<const schedules::Program*> runs);

  Observations RunInIssueOrder() const;

  // Describes what goes wrong in the first order that does not end as expected; nullopt if none is found.
  // Tries issue order, both orders of up to `max_pairs` unordered conflicts, and as many random orders again.
  std::optional<std::string> FindHarm(const Observations& expected, int max_pairs,
                                      std::mt19937_64& random) const;

 private:
  enum class Kind : uint8_t { kInstruction, kSizes, kHostWrites, kHostReads };
  struct Item {
    Kind kind;
    int run = 0;
    int instruction = -1;
    int sizes = -1;  // the item in which the issuing thread read this one's sizes
  };
  using Bits = std::vector<uint64_t>;

  void Build();
  int Add(const Item& item, const Bits& before);
  bool IsBefore(int a, int b) const { return (before_[b][a / 64] >> (a % 64) & 1) != 0; }
  std::vector<std::pair<int, int>> Conflicts() const;
  Observations Run(const std::vector<int>& order) const;

  // Appends the item and everything that must precede it, in issue order, unless it is in `order` already.
  void AppendUpTo(int item, std::vector<bool>& done, std::vector<int>& order) const;

  const schedules::Outline& outline_;
  const schedules::BuildOptions& options_;
  const schedules::StagePrograms& stage_;
  const std::vector<const schedules::Program*> runs_;
  std::vector<Item> items_;   // in issue order
  std::vector<Bits> before_;  // per item: what must have ended
  size_t words_ = 0;
};

// Describes the first thing that differs: "the host reads loss of run 1".
std::optional<std::string> FirstDifference(const Observations& expected, const Observations& found);

}  // namespace tandem::oracle
