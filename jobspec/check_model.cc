// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/checks.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"

namespace tandem::jobspec {
namespace {

constexpr int64_t kMostNormedOnGpus = 256;  // what GPUs have kernels for: ops/row_work.h

void CheckHeads(FieldChecker& check, const v1::Model& model) {
  const int64_t heads = model.num_attention_heads();
  const int64_t shared = model.num_key_value_heads();
  if (check.Usable({"model.num_attention_heads", "model.num_key_value_heads"}) && heads % shared != 0 &&
      !check.IsWritten("model.num_key_value_heads")) {
    check.Refuse("model.num_attention_heads",
                 absl::StrCat("a multiple of ", check.Named("model.num_key_value_heads")),
                 absl::StrCat(NearestMultiples(heads, shared, 1024), "; or give num_key_value_heads"));
  } else if (check.Usable({"model.num_attention_heads", "model.num_key_value_heads"}) &&
             heads % shared != 0) {
    std::vector<int64_t> divisors;
    for (int64_t divisor = 1; divisor <= heads; ++divisor) {
      if (heads % divisor == 0) {
        divisors.push_back(divisor);
      }
    }
    check.Refuse("model.num_key_value_heads",
                 absl::StrCat("a divisor of ", check.Named("model.num_attention_heads")),
                 absl::StrCat("use one of ", absl::StrJoin(divisors, ", ")));
  }
  if (check.Usable({"model.hidden_size", "model.num_attention_heads"}) && check.IsOk({"model.head_dim"}) &&
      !model.has_head_dim()) {
    if (check.IsWritten("model.num_attention_heads")) {
      check.Refuse("model.num_attention_heads",
                   absl::StrCat("a divisor of ", check.Named("model.hidden_size")),
                   "use one, or give head_dim");
    } else {
      check.Refuse("model.hidden_size",
                   absl::StrCat("a multiple of ", check.Named("model.num_attention_heads")),
                   absl::StrCat(NearestMultiples(model.hidden_size(), heads, 1 << 20), "; or give head_dim"));
    }
  }
  if (!check.Usable({"model.head_dim"})) {
    return;
  }
  const int64_t head_dim = model.head_dim();
  if (check.IsWritten("model.head_dim")) {
    if (head_dim % 2 != 0) {
      check.Refuse("model.head_dim", "an even number from 2 to 4096",
                   absl::StrCat("rotary embedding turns pairs of elements: use ", head_dim + 1));
    }
  } else if (check.Usable({"model.hidden_size", "model.num_attention_heads"}) &&
             (head_dim % 2 != 0 || head_dim > 4096)) {
    const bool is_heads = check.IsWritten("model.num_attention_heads");
    check.Refuse(is_heads ? "model.num_attention_heads" : "model.hidden_size",
                 absl::StrCat(is_heads ? heads : model.hidden_size()), "heads of an even size from 2 to 4096",
                 absl::StrCat(check.Named("model.hidden_size"), " / ", heads, " heads",
                              check.Origin("model.num_attention_heads"), " is ", head_dim,
                              ": use another number, or give head_dim"));
  }
  if (head_dim > 4096) {
    return;  // refused already
  }
  if (model.qk_norm() == v1::QK_NORM_HEAD && head_dim > kMostNormedOnGpus &&
      check.IsOk({"resources.device"}) && check.spec().resources().device() != v1::DEVICE_CPU) {
    const char* const path = check.IsWritten("model.head_dim") ? "model.head_dim" : "model.hidden_size";
    check.Refuse(
        path,
        absl::StrCat("heads of at most ", kMostNormedOnGpus, " with model_type ", model.model_type(),
                     " and resources.device ", ValueText(FindValue(check.spec(), "resources.device")),
                     check.Origin("resources.device")),
        "GPUs normalise no larger ones: use smaller heads, or device: cpu");
  }
}

// Those that the job must give.
std::vector<std::string> SizesOf(const v1::Model& model, const ModelType& type) {
  std::vector<std::string> sizes = {"model.hidden_size", "model.vocab_size"};
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  const auto needs = [&](model::LayerSymbol letter, const char* path) {
    if (type.letters == nullptr || (pattern.has_value() && model::Has(*pattern, letter))) {
      sizes.emplace_back(path);
    }
  };
  needs(model::LayerSymbol::kMlp, "model.intermediate_size");
  if (type.letters == nullptr || type.letters == std::string_view("M")) {
    sizes.emplace_back("model.num_hidden_layers");
  }
  needs(model::LayerSymbol::kAttention, "model.num_attention_heads");
  return sizes;
}

}  // namespace

void CheckModel(FieldChecker& check) {
  const v1::Model& model = check.spec().model();
  if (model.has_preset() && FindPreset(model.preset()) == nullptr) {
    const std::string closest = Closest(model.preset(), PresetNames());
    check.Refuse("model.preset", closest.empty() ? "use one of these, or give the fields of the model"
                                                 : absl::StrCat("did you mean ", closest, "?"));
    return;
  }
  if (model.has_hugging_face()) {
    if (model.has_preset()) {
      check.Forbid("model.hugging_face", "model.preset is given too: omit one of the two");
    } else {
      check.Forbid(
          "model.hugging_face",
          "tandem submit and tandem run replace it by the fields of that file: use them, or give the "
          "fields yourself");
    }
    return;
  }
  const ModelType* const type = FindModelType(model.model_type());
  if (type == nullptr) {
    check.Refuse("model.model_type", "not built yet: other architectures; use one of these");
    return;
  }
  const std::vector<std::string> sizes = SizesOf(model, *type);
  if (std::none_of(sizes.begin(), sizes.end(),
                   [&](const auto& path) { return check.Has(path) || !check.IsOk({path}); })) {
    check.Refuse(
        "model", "",
        absl::StrCat("a preset (", absl::StrJoin(PresetNames(), ", "), "), hugging_face, or the fields"),
        "for instance model: {preset: llama-tiny}");
    return;
  }
  for (const std::string& path : sizes) {
    if (!check.Has(path)) {
      check.Refuse(path, "give it, or name a preset whose value is to be used");
    }
  }
  CheckFieldsOfType(check, *type);
  CheckPattern(check, model, *type);
  CheckDepths(check, model);
  if (type->has_latent_attention) {
    CheckLatentAttention(check, model);
  } else {
    CheckHeads(check, model);
  }
  CheckModelType(check, model, *type);
  CheckRopeScaling(check, model);
  CheckExperts(check, model, *type);
  if (check.Usable({"model.vocab_size", "data.tokenizer"}) && check.spec().data().tokenizer() == "bytes" &&
      model.vocab_size() < 256) {
    check.Refuse("model.vocab_size", "at least 256 with tokenizer: bytes", "a byte has 256 values: use 256");
  }
}

}  // namespace tandem::jobspec
