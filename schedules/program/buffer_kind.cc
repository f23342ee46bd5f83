// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/buffer_kind.h"

#include <array>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

constexpr bool kOnHost = true;

constexpr std::array<BufferKindInfo, kNumBufferKinds> kKinds = {{
    {BufferKind::kWeights, "weights", Life::kPersistent, SubjectKind::kUnit, !kOnHost,
     BufferKind::kHostWeights},
    {BufferKind::kPublished, "published parameters", Life::kPersistent, SubjectKind::kUnit},
    {BufferKind::kGradients, "gradients", Life::kPersistent, SubjectKind::kUnit},
    {BufferKind::kOptimizerState, "optimizer state", Life::kPersistent, SubjectKind::kUnit, !kOnHost,
     BufferKind::kHostOptimizerState},
    {BufferKind::kNodeState, "node state", Life::kPersistent, SubjectKind::kState, !kOnHost,
     BufferKind::kHostNodeState},
    {BufferKind::kInputs, "inputs", Life::kRing, SubjectKind::kNone},
    {BufferKind::kBatch, "batches", Life::kRing, SubjectKind::kValue},
    {BufferKind::kLosses, "losses", Life::kRing, SubjectKind::kValue, !kOnHost, BufferKind::kHostLosses},
    {BufferKind::kNormTerms, "norm terms", Life::kRing, SubjectKind::kUnit},
    {BufferKind::kUpdateNorms, "update norms", Life::kRing, SubjectKind::kUnit, !kOnHost,
     BufferKind::kHostUpdateNorms},
    {BufferKind::kOutcome, "outcome", Life::kRing, SubjectKind::kNone, !kOnHost, BufferKind::kHostOutcome},
    {BufferKind::kHostInputs, "inputs on the host", Life::kRing, SubjectKind::kNone, kOnHost},
    {BufferKind::kHostBatch, "batches on the host", Life::kRing, SubjectKind::kValue, kOnHost},
    {BufferKind::kHostLosses, "losses on the host", Life::kRing, SubjectKind::kValue, kOnHost},
    {BufferKind::kHostUpdateNorms, "update norms on the host", Life::kRing, SubjectKind::kUnit, kOnHost},
    {BufferKind::kHostOutcome, "outcome on the host", Life::kRing, SubjectKind::kNone, kOnHost},
    {BufferKind::kHostWeights, "saved weights", Life::kPersistent, SubjectKind::kUnit, kOnHost},
    {BufferKind::kHostOptimizerState, "saved optimizer state", Life::kPersistent, SubjectKind::kUnit,
     kOnHost},
    {BufferKind::kHostNodeState, "saved node state", Life::kPersistent, SubjectKind::kState, kOnHost},
    {BufferKind::kGathered, "gathered parameters", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kOuterGathered, "shards gathered over the outer group", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kContribution, "contributions", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kCollected, "collected contributions", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kFullGradient, "full gradients", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kStaging, "staging", Life::kLocal, SubjectKind::kUnit},
    {BufferKind::kActivation, "activations", Life::kLocal, SubjectKind::kValue},
    {BufferKind::kActivationGradient, "gradients of activations", Life::kLocal, SubjectKind::kValue},
    {BufferKind::kAllToAll, "all-to-all", Life::kLocal, SubjectKind::kValue},
    {BufferKind::kSizes, "sizes on the host", Life::kLocal, SubjectKind::kValue, kOnHost},
    {BufferKind::kScratch, "scratch", Life::kLocal, SubjectKind::kNone},
}};

}  // namespace

const BufferKindInfo& InfoOf(BufferKind kind) {
  const size_t row = static_cast<size_t>(kind);
  TANDEM_CHECK(row < kKinds.size() && kKinds[row].kind == kind, "every kind of buffer has its row");
  return kKinds[row];
}

}  // namespace tandem::schedules
