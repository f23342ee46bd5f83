// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/checks.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

std::string PathOf(const char* key) { return absl::StrCat("model.rope_scaling.", key); }

}  // namespace

void CheckRopeScaling(FieldChecker& check, const v1::Model& model) {
  if (!model.has_rope_scaling()) {
    return;
  }
  const v1::RopeScaling& scaling = model.rope_scaling();
  if (!check.Has(PathOf("type"))) {
    check.Refuse(PathOf("type"), "give it, or omit the block");
    return;
  }
  if (!check.IsOk({PathOf("type")})) {
    return;
  }
  const bool llama3 = scaling.type() == v1::ROPE_TYPE_LLAMA3;
  const bool yarn = scaling.type() == v1::ROPE_TYPE_YARN;
  std::vector<const char*> needed = {"factor"};
  if (llama3 || yarn) {
    needed.push_back("original_max_position_embeddings");
  }
  for (const char* const key : needed) {
    if (!check.Has(PathOf(key))) {
      check.Refuse(PathOf(key), absl::StrCat(check.Named(PathOf("type")), " needs it"));
    }
  }
  const auto refuse = [&](bool is_allowed, std::initializer_list<const char*> keys) {
    for (const char* const key : keys) {
      if (!is_allowed && check.IsWritten(PathOf(key))) {
        check.Forbid(PathOf(key),
                     absl::StrCat(check.Named(PathOf("type")), " has no use for it: omit the key"));
      }
    }
  };
  refuse(llama3 || yarn, {"original_max_position_embeddings"});
  refuse(llama3, {"low_freq_factor", "high_freq_factor"});
  refuse(yarn, {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate"});
  if (llama3 && check.Usable({PathOf("low_freq_factor"), PathOf("high_freq_factor")}) &&
      scaling.low_freq_factor() >= scaling.high_freq_factor()) {
    check.Refuse(PathOf("low_freq_factor"),
                 absl::StrCat("less than ", check.Named(PathOf("high_freq_factor"))), "use a smaller number");
  }
}

}  // namespace tandem::jobspec
