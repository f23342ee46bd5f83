// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jobspec/field_checker.h"

namespace tandem::jobspec {

// What a model of model_type deepseek_v3 has beside what others have. Private to check_model.cc.

// Its heads.
void CheckLatentAttention(FieldChecker& check, const v1::Model& model);

// Of what is its own of the sparse layers; the rest is as with other models.
void CheckDeepseekExperts(FieldChecker& check, const v1::Model& model);

// Of another model: what only that one has.
void RefuseDeepseekFields(FieldChecker& check, const v1::Model& model);

}  // namespace tandem::jobspec
