#include "schedules/program/program.h"

namespace tandem::schedules {

bool IsHost(BufferKind kind) {
  switch (kind) {
    case BufferKind::kHostInputs:
    case BufferKind::kHostBatch:
    case BufferKind::kHostLosses:
    case BufferKind::kHostUpdateNorms:
    case BufferKind::kHostOutcome:
    case BufferKind::kSizes:
      return true;
    default:
      return false;
  }
}

const char* ToText(BufferKind kind) {
  switch (kind) {
    case BufferKind::kWeights:
      return "weights";
    case BufferKind::kPublished:
      return "published parameters";
    case BufferKind::kGradients:
      return "gradients";
    case BufferKind::kOptimizerState:
      return "optimizer state";
    case BufferKind::kNodeState:
      return "node state";
    case BufferKind::kInputs:
      return "inputs";
    case BufferKind::kBatch:
      return "batches";
    case BufferKind::kLosses:
      return "losses";
    case BufferKind::kNormTerms:
      return "norm terms";
    case BufferKind::kUpdateNorms:
      return "update norms";
    case BufferKind::kOutcome:
      return "outcome";
    case BufferKind::kHostInputs:
      return "inputs on the host";
    case BufferKind::kHostBatch:
      return "batches on the host";
    case BufferKind::kHostLosses:
      return "losses on the host";
    case BufferKind::kHostUpdateNorms:
      return "update norms on the host";
    case BufferKind::kHostOutcome:
      return "outcome on the host";
    case BufferKind::kGathered:
      return "gathered parameters";
    case BufferKind::kOuterGathered:
      return "shards gathered over the outer group";
    case BufferKind::kContribution:
      return "contributions";
    case BufferKind::kCollected:
      return "collected contributions";
    case BufferKind::kFullGradient:
      return "full gradients";
    case BufferKind::kStaging:
      return "staging";
    case BufferKind::kActivation:
      return "activations";
    case BufferKind::kActivationGradient:
      return "gradients of activations";
    case BufferKind::kAllToAll:
      return "all-to-all";
    case BufferKind::kSizes:
      return "sizes on the host";
    case BufferKind::kScratch:
      return "scratch";
  }
  return "?";
}

int64_t RingStride(const Buffer& buffer) {
  return (buffer.bytes.bound + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
}

int64_t ExtentOf(const Buffer& buffer) {
  return buffer.life == Life::kRing ? RingStride(buffer) + buffer.bytes.bound : buffer.bytes.bound;
}

std::vector<const Program*> StagePrograms::All() const {
  std::vector<const Program*> programs;
  for (const Program* program : {&train, &begin, &update, &validate}) {
    if (!program->instructions.empty()) {
      programs.push_back(program);
    }
  }
  return programs;
}

}  // namespace tandem::schedules
