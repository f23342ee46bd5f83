// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/field_checker.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {

// Checks that involve several fields, one function for each subject. They add violations to `check`, whose
// CheckFields must have run, and ignore fields that already have a violation. Validate calls all of them.

void CheckModel(FieldChecker& check);
void CheckData(FieldChecker& check);

// Checks that each path is absolute, and not too long.
void CheckPaths(FieldChecker& check);

void CheckTraining(FieldChecker& check);
void CheckBatch(FieldChecker& check);

// Checks that every name exists in the fields that list units, parameters or kinds of nodes.
void CheckNames(FieldChecker& check);

// Checks that parallelism.replicas is set if and only if the strategy places something on that outer axis of
// ranks.
void CheckReplicas(FieldChecker& check);

// Checks that the controller can choose the prefetch distance if the job leaves the choice to it.
void CheckPrefetch(FieldChecker& check);

// Checks that fields about overlap are set only with overlap, that fields about the exchange of experts' rows
// are set only if ranks share experts, and that only one of overlap and schedule delays weight gradients.
void CheckSchedule(FieldChecker& check);

// Checks the rank grid by the rules of parallel/. If a size is already refused, checks only the names in the
// order.
void CheckGrid(FieldChecker& check);

// Checks that NCCL's options are only for groups in which the job communicates on GPUs.
void CheckNccl(FieldChecker& check);

void CheckPrecision(FieldChecker& check);
void CheckCheckpoint(FieldChecker& check);

// CheckModel calls the functions below, except CheckBalancedRouting and CheckExcept. This one checks sparse
// layers, if the model type has them, and how ranks share the experts.
void CheckExperts(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks that tokens are dealt evenly to experts only in jobs that measure speed.
void CheckBalancedRouting(FieldChecker& check);

// Checks the layers of a model type that has a pattern, and the fields that only these layers use.
void CheckPattern(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks the fields outside `model` that depend on whether the pattern has depths of multi-token prediction.
void CheckDepths(FieldChecker& check, const v1::Model& model);

// Checks that no field is written that the model type does not have.
void CheckFieldsOfType(FieldChecker& check, const ModelType& type);

// Checks the fields that the model type determines, those of the sliding window, and those of the rotation.
void CheckModelType(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks that the scaling of the rotary embedding has a type, and only fields of this type.
void CheckRopeScaling(FieldChecker& check, const v1::Model& model);

// Checks the sizes of the heads of a model with latent attention.
void CheckLatentAttention(FieldChecker& check, const v1::Model& model);

// Checks the fields that only sparse layers of models with latent attention have; CheckExperts checks the
// other fields of sparse layers.
void CheckDeepseekExperts(FieldChecker& check, const v1::Model& model);

// Runs Check, without violations for fields at or below the `unusable` paths, and without violations that
// follow from these fields.
Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable);

}  // namespace tandem::jobspec
