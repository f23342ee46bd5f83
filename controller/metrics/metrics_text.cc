// SPDX-License-Identifier: Apache-2.0
#include "controller/metrics/metrics_text.h"

#include <prometheus/text_serializer.h>

namespace tandem::controller {

std::string MetricsText(const prometheus::Collectable& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

}  // namespace tandem::controller
