// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary_tables.h"

#include <cmath>
#include <vector>

#include "ops/array_checks.h"

namespace tandem::ops {

void RopeTables(double theta, const RopeScaling& scaling, const Array& cosines, const Array& sines) {
  const std::vector<double> frequencies = RopeFrequencies(theta, cosines.columns, scaling);
  const double factor = RopeAttentionFactor(scaling);
  CheckRows("cosines", cosines, cosines.rows, cosines.columns, DeviceKind::kCpu);
  CheckRows("sines", sines, cosines.rows, cosines.columns, DeviceKind::kCpu);
  Check(sines.row_stride == cosines.row_stride, "sines must have the row stride of cosines, not that of ",
        sines.shape());
  return WithStatisticsType(cosines, [&]<typename T>(T) {
    for (int64_t position = 0; position < cosines.rows; ++position) {
      T* const cosine = ElementsOf<T>(cosines) + position * cosines.row_stride;
      T* const sine = ElementsOf<T>(sines) + position * cosines.row_stride;
      for (int64_t i = 0; i < cosines.columns; ++i) {
        const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
        cosine[i] = static_cast<T>(factor * std::cos(angle));
        sine[i] = static_cast<T>(factor * std::sin(angle));
      }
    }
  });
}

void LatentRotaryTables(const LatentHeads& heads, double theta, const RopeScaling& scaling,
                        const Array& cosines, const Array& sines) {
  CheckMatrix("cosines", cosines, cosines.rows, heads.head_dim() / 2, DeviceKind::kCpu);
  CheckMatrix("sines", sines, cosines.rows, heads.head_dim() / 2, DeviceKind::kCpu);
  RopeTables(theta, scaling, cosines.Columns(0, heads.rotary / 2), sines.Columns(0, heads.rotary / 2));
  const bool has_magnitude =
      scaling.type == RopeScalingType::kYarn && scaling.mscale_all_dim > 0 && scaling.factor > 1;
  const double magnitude = has_magnitude ? 0.1 * scaling.mscale_all_dim * std::log(scaling.factor) + 1 : 1;
  return WithStatisticsType(cosines, [&]<typename T>(T) {
    for (int64_t position = 0; position < cosines.rows; ++position) {
      T* const cosine = ElementsOf<T>(cosines) + position * cosines.columns;
      T* const sine = ElementsOf<T>(sines) + position * cosines.columns;
      for (int64_t i = 0; i < cosines.columns; ++i) {
        const bool turns = i < heads.rotary / 2;
        cosine[i] = static_cast<T>(magnitude * (turns ? cosine[i] : T{1}));
        sine[i] = turns ? static_cast<T>(magnitude * sine[i]) : T{0};
      }
    }
  });
}

}  // namespace tandem::ops
