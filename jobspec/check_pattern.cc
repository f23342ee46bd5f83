// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "jobspec/checks.h"
#include "model/layer_pattern.h"
#include "platform/status_macros.h"

namespace tandem::jobspec {
namespace {

constexpr char kPattern[] = "model.hybrid_pattern";

absl::Status PatternStatus(FieldChecker& check) {
  TANDEM_ASSIGN_OR_RETURN(const model::LayerPattern pattern,
                          model::ParseLayerPattern(check.spec().model().hybrid_pattern()));
  const v1::Parallelism& parallelism = check.spec().parallelism();
  if (parallelism.pipeline() > 1) {
    TANDEM_RETURN_IF_ERROR(model::CheckSegments(pattern, parallelism.pipeline()));
  }
  return parallelism.schedule() == v1::SCHEDULE_OVERLAP ? model::CheckOverlaps(pattern) : absl::OkStatus();
}

}  // namespace

void CheckPattern(FieldChecker& check) {
  if (!check.Has(kPattern)) {
    return;
  }
  if (const absl::Status status = PatternStatus(check); !status.ok()) {
    check.Forbid(kPattern, std::string(status.message()));
  }
}

}  // namespace tandem::jobspec
