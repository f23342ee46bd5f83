// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "jobspec/field_checker.h"

namespace tandem::jobspec {

// Whether that layer, from 0, has experts. False where the fields that say so are out of bounds.
bool IsSparse(const v1::Model& model, int64_t layer);

// "the nearest are 24 and 36": the multiples of `unit` around `value`, of those in [unit, max].
std::string NearestMultiples(int64_t value, int64_t unit, int64_t max);

// What the fields of a model must be to each other.
class ModelChecker : protected FieldChecker {
 protected:
  using FieldChecker::FieldChecker;

  void CheckModel();

 private:
  void CheckHeads(const v1::Model& model);
  void CheckLatentAttention(const v1::Model& model);
  void CheckExperts(const v1::Model& model, bool sparse);
  void CheckDeepseekExperts(const v1::Model& model);
  void RefuseDeepseekFields(const v1::Model& model);
};

}  // namespace tandem::jobspec
