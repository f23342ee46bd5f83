// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace tandem::schedules {

enum class BufferKind : uint8_t {
  // Persistent, one for each unit.
  kWeights,         // main weights: the rank's shard (all of them if the optimizer is replicated)
  kPublished,       // the same weights in the compute type, if it differs from the main type
  kGradients,       // accumulator, in the main type
  kOptimizerState,  // Adam's two moments, parts "exp_avg" and "exp_avg_sq"
  // Persistent, one for each state of a node.
  kNodeState,
  // Rings of two elements: even and odd runs use different ones.
  kInputs,       // what the host passes to the run: learning rate, step, requests
  kBatch,        // tokens of the run's microbatches, one part for each; subject: the outline's batch value
  kLosses,       // of a value; one part for each microbatch
  kNormTerms,    // of a unit; sum of squares and non-finite count of this rank's accumulator
  kUpdateNorms,  // of a unit; per parameter the magnitudes of weight, gradient, update
  kOutcome,      // of GradientNorm: norm, clip coefficient, finite, requests
  // Rings in pinned host memory, with the subject of the ring on the device: what is loaded into the first
  // two of the above, and copies of the others (norm terms have none).
  kHostInputs,
  kHostBatch,
  kHostLosses,
  kHostUpdateNorms,
  kHostOutcome,
  // Persistent, at the end of the pinned region (from StagePrograms::saved_at on): copies of the buffers of
  // the same subject. Snapshots make them, and the host writes them to a checkpoint. No instruction copies
  // frozen units.
  kHostWeights,
  kHostOptimizerState,
  kHostNodeState,
  // Local to a run.
  kGathered,            // of a unit; parameters in the compute type
  kOuterGathered,       // of a unit; the inner shard, gathered over the outer group
  kContribution,        // of a unit; gradient of one microbatch in the transport type
  kCollected,           // of a unit; gradients of one microbatch that passes add up in the main type (Round)
  kFullGradient,        // of a unit; the rank's contributions of the whole run, added up in the main type
  kStaging,             // of a unit; a reduction receives the pieces of other ranks in it
  kActivation,          // of a value
  kActivationGradient,  // of a value
  kAllToAll,            // of a value of kind kAllToAll
  kSizes,               // of a value of kind kHost; in pinned host memory
  kScratch,             // of one instruction; subject: its target, a node or unit; -1 if it has none
};
inline constexpr int kNumBufferKinds = static_cast<int>(BufferKind::kScratch) + 1;

enum class Life : uint8_t {
  kLocal,       // lives within one run; holds garbage at the run's start
  kPersistent,  // the same buffer in every program of the stage, at the same address
  kRing,        // persistent, with two elements; Operand::former selects this run's or the former run's
};

// What Buffer::subject is an index of.
enum class SubjectKind : uint8_t { kNone, kUnit, kState, kValue };

// One row for each kind (buffer_kind.cc).
struct BufferKindInfo {
  BufferKind kind;
  const char* name;  // "gathered parameters"
  Life life;
  SubjectKind subject;
  bool on_host = false;                      // in pinned host memory
  std::optional<BufferKind> host_copy = {};  // the kind of the copy that a Report or Snapshot makes
};

const BufferKindInfo& InfoOf(BufferKind kind);
// The kind of the host's copy of a buffer; the kind itself if the host has no copy.
inline BufferKind HostCopyOf(BufferKind kind) { return InfoOf(kind).host_copy.value_or(kind); }

// Whether buffers of the kind are copies that Snapshots make, not Reports.
inline bool IsSaved(BufferKind kind) {
  return kind == BufferKind::kHostWeights || kind == BufferKind::kHostOptimizerState ||
         kind == BufferKind::kHostNodeState;
}

inline bool IsHost(BufferKind kind) { return InfoOf(kind).on_host; }
inline const char* ToText(BufferKind kind) { return InfoOf(kind).name; }

}  // namespace tandem::schedules
