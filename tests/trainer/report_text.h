// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/v1/report.pb.h"

namespace tandem::trainer {

// Parses a report such as "step: 3 loss: 2.5 scalars { key: 'validation_loss' value: 3 }".
inline v1::StepReport ReportOf(const std::string& text) {
  v1::StepReport report;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &report)) << text;
  return report;
}

}  // namespace tandem::trainer
