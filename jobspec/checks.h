// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/field_checker.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {

// Checks that involve several fields, one function for each subject. Each refuses through `check`, after its
// CheckFields, and treats refused fields as unknown. Validate calls all of them.

void CheckModel(FieldChecker& check);
void CheckData(FieldChecker& check);

// Checks that each path is absolute, and not too long.
void CheckPaths(FieldChecker& check);

void CheckTraining(FieldChecker& check);
void CheckBatch(FieldChecker& check);

// Checks fields that list names of units, parameters or kinds of nodes: every name must exist.
void CheckNames(FieldChecker& check);

// Checks that there is an outer axis of ranks if and only if the strategy places something on it.
void CheckReplicas(FieldChecker& check);

// Checks that a distance which is left to be chosen when the job is submitted can be chosen.
void CheckPrefetch(FieldChecker& check);

// Checks that fields about the overlap are set only with overlap, that fields about the exchange between
// experts are set only if ranks share experts, and that only one of the two moves weight gradients.
void CheckSchedule(FieldChecker& check);

// Checks the rank grid as parallel/ does. If a size has been refused already, only the names in the order are
// checked.
void CheckGrid(FieldChecker& check);

// Checks NCCL's options: each group must be one that the job communicates in on GPUs.
void CheckNccl(FieldChecker& check);

void CheckPrecision(FieldChecker& check);
void CheckCheckpoint(FieldChecker& check);

// Checks sparse layers, if the model type has them, and how ranks share their experts. CheckModel calls this
// function and those below.
void CheckExperts(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks that tokens are dealt evenly to experts only in jobs that measure speed.
void CheckBalancedRouting(FieldChecker& check);

// Checks the layers of a model type that has a pattern, and the fields that only these layers have. For any
// other type, checks that there is no pattern.
void CheckPattern(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks what layers that predict further tokens require of the job, after its pattern.
void CheckDepths(FieldChecker& check, const v1::Model& model);

// Checks fields that follow from the model type, and the sliding window, which only some types may have.
void CheckModelType(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks the scaling of the rotary embedding: its type, and the fields that this type has.
void CheckRopeScaling(FieldChecker& check, const v1::Model& model);

// Checks the heads of models with latent attention, which other models do not have.
void CheckLatentAttention(FieldChecker& check, const v1::Model& model);

// Checks what only the sparse layers of these models have; the rest is as for other models.
void CheckDeepseekExperts(FieldChecker& check, const v1::Model& model);

// Checks, for any other model, that no field is set which only these models have.
void RefuseDeepseekFields(FieldChecker& check, const v1::Model& model);

// Runs Check, without violations for fields at or below the `unusable` paths, or for what follows from them.
Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable);

}  // namespace tandem::jobspec
