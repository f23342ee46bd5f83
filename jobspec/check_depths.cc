// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "model/layer_pattern.h"

namespace tandem::jobspec {
namespace {

constexpr char kDepthPattern[] = "model.hybrid_pattern";

}  // namespace

void CheckDepths(FieldChecker& check, const v1::Model& model) {
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  if (!check.IsOk({kDepthPattern, "model.model_type"})) {
    return;
  }
  const int64_t depths = pattern.has_value() ? pattern->num_depths : 0;
  if (depths == 0) {
    for (const char* path : {"training.mtp_loss_weight", "training.mtp_detach"}) {
      if (check.IsWritten(path)) {
        check.Forbid(path,
                     "the model predicts no further tokens: omit the key, or use model_type: hybrid and a "
                     "pattern with a depth of multi-token prediction, for instance M*M*/M*");
      }
    }
    return;
  }
  if (check.Usable({"training.sequence_length"}) && check.spec().training().sequence_length() <= depths) {
    check.Refuse("training.sequence_length",
                 absl::StrCat("more than ", depths, " with ", check.Named(kDepthPattern)),
                 "a sequence has a target at each depth: use longer sequences, or fewer depths");
  }
  const v1::Data& data = check.spec().data();
  if (check.Usable({"data.documents"}) && data.documents() == v1::DOCUMENTS_PACKED) {
    check.Refuse("data.documents", absl::StrCat("stream with ", check.Named(kDepthPattern)),
                 "not built yet: multi-token prediction within documents; use stream");
  }
  if (check.Usable({"data.count_first_token"}) && !data.count_first_token()) {
    check.Refuse("data.count_first_token", absl::StrCat("true with ", check.Named(kDepthPattern)),
                 "not built yet: multi-token prediction within documents; omit the key");
  }
}

}  // namespace tandem::jobspec
