// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tandem::oracle {

// The oracle computes with hashes instead of numbers. A hash covers the operation and the hashes of its
// inputs, so equal hashes mean the same arithmetic on the same data in the same order.
using Hash = uint64_t;

enum class Operation : uint64_t {
  kInitial = 1,  // kind, subject, element, rank: what is in memory before the first run
  kGarbage,      // address, rank
  kGivenByHost,  // run, kind, subject, rank
  kSlice,        // offset, bytes, hash of what was written as a whole
  kJoin,         // several parts, each written on its own
  kTorn,         // hashes of all fragments found in some bytes
  kPass,         // node, pass, microbatch or -1, what all ranks that it exchanges with read
  kOutput,       // pass, place, rank in its group
  kAdd,
  kGather,
  kFold,
  kZero,
  kRound,
  kAccumulate,
  kNormTerms,
  kNorm,
  kOptimizer,
  kUpdated,  // state, its old content, outcome, counters of all ranks
};

// An input of a hash.
inline uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }

inline Hash Mix(Hash hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 31);
}

inline Hash HashOf(Operation operation, std::initializer_list<uint64_t> values,
                   const std::vector<Hash>& more = {}) {
  Hash hash = Mix(0x5851F42D4C957F2D, static_cast<uint64_t>(operation));
  for (const uint64_t value : values) {
    hash = Mix(hash, value);
  }
  for (const Hash value : more) {
    hash = Mix(hash, value);
  }
  return Mix(hash, more.size());
}

// Part of something that was written as a whole, or all of it.
inline Hash Slice(int64_t offset, int64_t bytes, Hash whole) {
  return HashOf(Operation::kSlice, {U(offset), U(bytes), whole});
}

inline Hash Join(const std::vector<Hash>& parts) {
  return parts.size() == 1 ? parts[0] : HashOf(Operation::kJoin, {}, parts);
}

}  // namespace tandem::oracle
