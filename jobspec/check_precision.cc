// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

// Hidden states are of precision.compute; a unit converts them. Of a type that it takes from there nothing
// is said here, nor below.
void CheckUnitCompute(FieldChecker& check, const std::string& unit, v1::ComputeType compute) {
  const std::string path = absl::StrCat(unit, ".compute");
  const bool fp64 = check.spec().precision().compute() == v1::COMPUTE_TYPE_FP64;
  if (check.IsWritten(path) && check.Usable({"precision.compute", path}) &&
      fp64 != (compute == v1::COMPUTE_TYPE_FP64)) {
    check.Refuse(path, fp64 ? "fp64" : "fp32, bf16",
                 "fp64 is for whole models: use one of these, or omit the key");
  }
}

void CheckTransport(FieldChecker& check, const std::string& unit, v1::ComputeType compute,
                    v1::ComputeType transport) {
  const std::string path = absl::StrCat(unit, ".transport");
  const std::string source = absl::StrCat(unit, ".compute");
  if (!check.IsWritten(path) || !check.Usable({path, source}) || compute == transport ||
      (compute == v1::COMPUTE_TYPE_BF16 && transport == v1::COMPUTE_TYPE_FP32)) {
    return;
  }
  const std::string computed = ValueText(FindValue(check.spec(), source));
  check.Refuse(path, compute == v1::COMPUTE_TYPE_BF16 ? "bf16, fp32" : computed,
               absl::StrCat("gradients are computed in ", computed, ": use one of these, or omit the key"));
}

}  // namespace

void CheckPrecision(FieldChecker& check) {
  const v1::Precision& precision = check.spec().precision();
  CheckTransport(check, "precision", precision.compute(), precision.transport());
  CheckUnitCompute(check, "precision.embedding", precision.embedding().compute());
  CheckTransport(check, "precision.embedding", precision.embedding().compute(),
                 precision.embedding().transport());
  CheckUnitCompute(check, "precision.head", precision.head().compute());
  CheckTransport(check, "precision.head", precision.head().compute(), precision.head().transport());
  if (check.spec().model().tie_word_embeddings() &&
      check.Usable({"precision.embedding.compute", "precision.head.compute"}) &&
      precision.embedding().compute() != precision.head().compute()) {
    const char* const path =
        check.IsWritten("precision.head.compute") ? "precision.head.compute" : "precision.embedding.compute";
    check.Refuse(path, "one type for embedding and head, which share a matrix",
                 "give both the same, or model: {tie_word_embeddings: false}");
  }
}

}  // namespace tandem::jobspec
