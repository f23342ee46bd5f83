#pragma once

#include <string>

#include "tandem/v1/state.pb.h"

namespace tandem::cli {

// One step as a JSON object on one line, full precision: step, loss, grad_norm, learning_rate, tokens,
// seconds, and where they exist nonfinite, attempt (after the first), and the scalars ("validation_loss").
// `kind`, where not empty, is its first key. NaN and infinity, which JSON lacks, become null. No newline.
std::string ReportJson(const v1::StepReport& report, const std::string& kind);

}  // namespace tandem::cli
