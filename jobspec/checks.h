// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/field_checker.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_types.h"

namespace tandem::jobspec {

// What fields must be to each other, by what they are about. Each refuses through `check`, after its
// CheckFields, and takes the fields that have been refused for unknown. Validate calls them all.

void CheckModel(FieldChecker& check);
void CheckData(FieldChecker& check);

// That the value of the field at `path` is an absolute path, and not too long.
void CheckPath(FieldChecker& check, std::string_view path, const std::string& value);
void CheckTraining(FieldChecker& check);
void CheckBatch(FieldChecker& check);

// Fields that list names of units, parameters or kinds of nodes: every one must be there.
void CheckNames(FieldChecker& check);

// An outer axis of ranks is there if and only if the strategy places something on it.
void CheckReplicas(FieldChecker& check);

// A distance that is left to be chosen can be, when the job is submitted.
void CheckPrefetch(FieldChecker& check);

// What is said of the overlap needs one, and what is said of the exchange between experts needs ranks that
// share them. Weight gradients are moved by one of the two.
void CheckSchedule(FieldChecker& check);

// The rank grid, as parallel/ judges it. Where a size is refused already, only the names in the order mean
// something.
void CheckGrid(FieldChecker& check);

// NCCL's options: each group is one that the job communicates over, on GPUs.
void CheckNccl(FieldChecker& check);

void CheckPrecision(FieldChecker& check);
void CheckCheckpoint(FieldChecker& check);

// Sparse layers, if the model type has such, and how ranks share their experts.
// CheckModel calls it, and what follows.
void CheckExperts(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Tokens are dealt to experts only where nothing but speed is measured.
void CheckBalancedRouting(FieldChecker& check);

// The layers of a model type that has a pattern, and what only these layers have; for any other type that
// there is none.
void CheckPattern(FieldChecker& check, const v1::Model& model, const ModelType& type);
// What layers that predict further tokens ask of the job, once its pattern is checked.
void CheckDepths(FieldChecker& check, const v1::Model& model);

// Fields that follow from the model type, and the sliding window, which some types may have.
void CheckModelType(FieldChecker& check, const v1::Model& model, const ModelType& type);

// Checks what models of latent attention have beside what others have: their heads.
void CheckRopeScaling(FieldChecker& check, const v1::Model& model);
void CheckLatentAttention(FieldChecker& check, const v1::Model& model);

// Checks what only their sparse layers have; the rest is as with other models.
void CheckDeepseekExperts(FieldChecker& check, const v1::Model& model);

// Checks, for any other model, that nothing is set which only those have.
void RefuseDeepseekFields(FieldChecker& check, const v1::Model& model);

// Check, saying nothing about fields at or below the `unusable` paths, nor about what follows from them.
Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable);

}  // namespace tandem::jobspec
