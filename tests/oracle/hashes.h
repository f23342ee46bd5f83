// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tandem::oracle {

// What the oracle computes with instead of numbers: a hash covers the operation and the hashes of all that it
// was made of, so that equal hashes are the same arithmetic on the same data in the same order.
using Hash = uint64_t;

enum class Operation : uint64_t {
  kInitial = 1,  // kind, subject, element, rank: what is in memory before the first run
  kGarbage,      // address, rank
  kGivenByHost,  // run, kind, subject, rank
  kSlice,        // offset, bytes, of something written as a whole
  kJoin,         // several parts, each written on its own
  kTorn,         // whatever was found in some bytes
  kPass,         // node, pass, microbatch or -1, reads of all ranks that it exchanges with
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
  kUpdated,  // state, its own, outcome, counters of all ranks
};

// What a hash is made of.
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

// Part of something that was written as a whole, or the whole.
inline Hash Slice(int64_t offset, int64_t bytes, Hash whole) {
  return HashOf(Operation::kSlice, {U(offset), U(bytes), whole});
}

inline Hash Join(const std::vector<Hash>& parts) {
  return parts.size() == 1 ? parts[0] : HashOf(Operation::kJoin, {}, parts);
}

}  // namespace tandem::oracle
