// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/checks.h"
#include "model/layer_pattern.h"
#include "platform/status_macros.h"

namespace tandem::jobspec {
namespace {

using model::LayerSymbol;

constexpr char kPattern[] = "model.hybrid_pattern";
constexpr char kMixers[] = "model.mamba";
constexpr char kDeltaNets[] = "model.gated_delta_net";

// "M, * or -".
std::string LettersText(const char* letters) {
  std::vector<std::string> all;
  for (const char* letter = letters; *letter != 0; ++letter) {
    all.emplace_back(1, *letter);
  }
  const std::string last = all.back();
  all.pop_back();
  return all.empty() ? last : absl::StrCat(absl::StrJoin(all, ", "), " or ", last);
}

std::string NotBuilt(LayerSymbol symbol, const ModelType& type) {
  return symbol == LayerSymbol::kSparseAttention ? "; not built yet: sparse attention"
         : symbol == LayerSymbol::kExperts && type.name == std::string_view("nemotron_h")
             ? "; not built yet: its experts, which have no gate"
             : "";
}

// Of the letters of a layer, that the model type may have them.
absl::Status LettersStatus(const std::vector<LayerSymbol>& symbols, const ModelType& type) {
  for (const LayerSymbol symbol : symbols) {
    const char letter = static_cast<char>(symbol);
    if (!type.MayHave(letter)) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(1, letter), " is no layer of model_type ",
                                                     type.name, "; use ", LettersText(type.letters),
                                                     NotBuilt(symbol, type)));
    }
  }
  return absl::OkStatus();
}

// Of a model type whose layers are all a mixer and an MLP, or all a mixer and experts.
absl::Status PairsStatus(const std::vector<model::LogicalLayer>& layers, const ModelType& type) {
  const LayerSymbol last = layers.front().symbols.back();
  for (const model::LogicalLayer& layer : layers) {
    const std::vector<LayerSymbol>& symbols = layer.symbols;
    const bool pair = symbols.size() == 2 &&
                      (symbols[0] == LayerSymbol::kMamba || symbols[0] == LayerSymbol::kAttention) &&
                      (symbols[1] == LayerSymbol::kMlp || symbols[1] == LayerSymbol::kExperts);
    if (!pair || symbols[1] != last) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer.index, " is none of model_type ",
                                                     type.name, ": write each as [M-] or [*-]",
                                                     type.MayHave('E') ? ", or each as [ME] or [*E]" : ""));
    }
  }
  return absl::OkStatus();
}

// Of one layer, that the model type may have it.
absl::Status LayerStatus(const model::LogicalLayer& layer, const ModelType& type) {
  if (layer.grouped && !type.may_group) {
    return absl::InvalidArgumentError(
        absl::StrCat("model_type ", type.name, " has no groups: write their letters alone"));
  }
  TANDEM_RETURN_IF_ERROR(LettersStatus(layer.symbols, type));
  const auto is_mlp = [](LayerSymbol symbol) {
    return symbol == LayerSymbol::kMlp || symbol == LayerSymbol::kExperts;
  };
  if (type.mixed_pairs &&
      (layer.symbols.size() != 2 || is_mlp(layer.symbols[0]) || !is_mlp(layer.symbols[1]))) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", layer.index, " of a model_type ", type.name,
                                                   " must be a group of two: G or *, and then - or E"));
  }
  const auto has = [&](LayerSymbol symbol) {
    return std::find(layer.symbols.begin(), layer.symbols.end(), symbol) != layer.symbols.end();
  };
  if (has(LayerSymbol::kMlp) && has(LayerSymbol::kExperts)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer.index,
                     " has a - and an E, whose parameters would have the same names; end the group "
                     "before one of them"));
  }
  return absl::OkStatus();
}

// Of the depths of multi-token prediction, likewise.
absl::Status DepthStatus(const model::LayerPattern& pattern, const ModelType& type) {
  if (!type.has_depths) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model_type ", type.name, " has no multi-token prediction: omit the first / and what is behind it"));
  }
  TANDEM_RETURN_IF_ERROR(LettersStatus(pattern.depth, type));
  constexpr size_t kMostLetters = 8;
  if (pattern.depth.size() > kMostLetters) {
    return absl::InvalidArgumentError(absl::StrCat("a depth has ", pattern.depth.size(),
                                                   " letters behind its /; use at most ", kMostLetters));
  }
  const auto experts = std::find(pattern.depth.begin(), pattern.depth.end(), LayerSymbol::kExperts);
  return experts == pattern.depth.end() || experts + 1 == pattern.depth.end()
             ? absl::OkStatus()
             : absl::InvalidArgumentError("E is not the last layer behind a /: end each depth with it");
}

absl::Status PatternStatus(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  TANDEM_ASSIGN_OR_RETURN(const model::LayerPattern pattern,
                          model::ParseLayerPattern(model.hybrid_pattern()));
  for (const model::LogicalLayer& layer : model::LayersOf(pattern)) {
    TANDEM_RETURN_IF_ERROR(LayerStatus(layer, type));
  }
  if (pattern.num_depths > 0) {
    TANDEM_RETURN_IF_ERROR(DepthStatus(pattern, type));
  }
  if (type.pairs) {
    TANDEM_RETURN_IF_ERROR(PairsStatus(model::LayersOf(pattern), type));
  }
  const int64_t letters_of_depths = pattern.num_depths * static_cast<int64_t>(pattern.depth.size());
  if (const int64_t layers = model::CountsOf(pattern).logical + letters_of_depths;
      layers > kMostModelLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", layers, " layers; use at most ", kMostModelLayers));
  }
  const v1::Parallelism& parallelism = check.spec().parallelism();
  if (parallelism.pipeline() > 1) {
    TANDEM_RETURN_IF_ERROR(model::CheckSegments(pattern, parallelism.pipeline()));
  }
  return parallelism.schedule() == v1::SCHEDULE_OVERLAP ? model::CheckOverlaps(pattern) : absl::OkStatus();
}

// What layers of one kind alone have, where there is none of these.
void RefuseUnused(FieldChecker& check, const model::LayerPattern& pattern, const ModelType& type) {
  const auto refuse = [&](const char* path, const std::string& why) {
    if (check.IsWritten(path)) {
      check.Forbid(path, absl::StrCat(why, ": omit the key"));
    }
  };
  const bool attends = model::Has(pattern, LayerSymbol::kAttention);
  for (const char* path : {"model.num_attention_heads", "model.num_key_value_heads", "model.head_dim"}) {
    if (!attends) {
      refuse(path, absl::StrCat("no layer of ", check.Named(kPattern), " attends"));
    }
  }
  for (const char* path : {"model.rope_theta", "model.rope_scaling.type", "model.partial_rotary_factor",
                           "model.rotary_embedding"}) {
    if (!attends || !type.rotates) {
      refuse(path, absl::StrCat("no layer of model_type ", type.name, attends ? "" : " and this pattern",
                                " rotates queries and keys"));
    }
  }
  if (!model::Has(pattern, LayerSymbol::kMlp) && !model::Has(pattern, LayerSymbol::kExperts)) {
    refuse("model.intermediate_size", absl::StrCat("no layer of ", check.Named(kPattern), " is an MLP"));
  }
}

void CheckMixers(FieldChecker& check, const v1::Model& model, const model::LayerPattern& pattern,
                 const ModelType& type) {
  if (!model::Has(pattern, LayerSymbol::kMamba)) {
    if (model.has_mamba()) {
      check.Forbid(kMixers, absl::StrCat("no layer of ", check.Named(kPattern),
                                         " is an M: omit the block, or add one"));
    }
    return;
  }
  if (check.Usable({"model.hidden_size", "model.mamba.head_dim"}) && check.IsOk({"model.mamba.num_heads"}) &&
      !model.mamba().has_num_heads()) {
    check.Refuse("model.mamba.num_heads",
                 absl::StrCat("twice ", check.Named("model.hidden_size"), " is no multiple of ",
                              check.Named("model.mamba.head_dim"), ": say how many heads there are"));
  }
  if (check.Usable({"model.mamba.num_heads", "model.mamba.n_groups"}) &&
      model.mamba().num_heads() % model.mamba().n_groups() != 0) {
    check.Refuse("model.mamba.n_groups", absl::StrCat("a divisor of ", check.Named("model.mamba.num_heads")),
                 "heads are shared evenly among groups: use another number");
  }
  if (type.pairs && check.Usable({"model.mamba.num_heads", "model.mamba.head_dim", "model.hidden_size"}) &&
      model.mamba().num_heads() * model.mamba().head_dim() % model.hidden_size() != 0) {
    check.Refuse("model.mamba.num_heads",
                 absl::StrCat("a number that, times ", check.Named("model.mamba.head_dim"),
                              ", is a multiple of ", check.Named("model.hidden_size")),
                 absl::StrCat("the mixers of model_type ", model.model_type(),
                              " are a whole number of times as wide as the model: use another number"));
  }
}

void CheckDeltaNets(FieldChecker& check, const v1::Model& model, const model::LayerPattern& pattern) {
  if (!model::Has(pattern, LayerSymbol::kGatedDelta)) {
    if (model.has_gated_delta_net()) {
      check.Forbid(kDeltaNets, absl::StrCat("no layer of ", check.Named(kPattern),
                                            " is a G: omit the block, or add one"));
    }
    return;
  }
  const v1::GatedDeltaNet& delta = model.gated_delta_net();
  if (check.Usable({"model.hidden_size", "model.gated_delta_net.key_head_dim"}) &&
      check.IsOk({"model.gated_delta_net.num_key_heads"}) && !delta.has_num_key_heads()) {
    check.Refuse(
        "model.gated_delta_net.num_key_heads",
        absl::StrCat(check.Named("model.hidden_size"), " is no multiple of ",
                     check.Named("model.gated_delta_net.key_head_dim"), ": say how many heads there are"));
  }
  if (check.Usable({"model.gated_delta_net.num_key_heads", "model.gated_delta_net.num_value_heads"}) &&
      delta.num_value_heads() % delta.num_key_heads() != 0) {
    check.Refuse("model.gated_delta_net.num_value_heads",
                 absl::StrCat("a multiple of ", check.Named("model.gated_delta_net.num_key_heads")),
                 "value heads are shared evenly among key heads: use another number");
  }
}

}  // namespace

void CheckPattern(FieldChecker& check, const v1::Model& model, const ModelType& type) {
  if (type.letters == nullptr) {
    return;
  }
  if (!check.Has(kPattern)) {
    if (std::string_view(type.letters).size() > 1) {
      check.Refuse(kPattern,
                   absl::StrCat("say what each layer is, for instance ", type.mixed_pairs ? "[GE][GE][GE][*E]"
                                                                         : type.pairs     ? "[M-][M-][*-]"
                                                                                          : "M-M*-"));
    }
    return;
  }
  if (const absl::Status status = PatternStatus(check, model, type); !status.ok()) {
    check.Forbid(kPattern, std::string(status.message()));
    return;
  }
  const model::LayerPattern pattern = *PatternOf(model);
  const int64_t layers = model::CountsOf(pattern).logical;
  if (check.Usable({"model.num_hidden_layers"}) && model.num_hidden_layers() != layers) {
    check.Refuse("model.num_hidden_layers", absl::StrCat(layers, " with ", check.Named(kPattern)),
                 "a group is one layer: omit the key");
  }
  RefuseUnused(check, pattern, type);
  CheckMixers(check, model, pattern, type);
  CheckDeltaNets(check, model, pattern);
}

void CheckDepths(FieldChecker& check, const v1::Model& model) {
  const std::optional<model::LayerPattern> pattern = PatternOf(model);
  if (!check.IsOk({kPattern, "model.model_type"})) {
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
                 absl::StrCat("more than ", depths, " with ", check.Named(kPattern)),
                 "a sequence has a target at each depth: use longer sequences, or fewer depths");
  }
  const v1::Data& data = check.spec().data();
  if (check.Usable({"data.documents"}) && data.documents() == v1::DOCUMENTS_PACKED) {
    check.Refuse("data.documents", absl::StrCat("stream with ", check.Named(kPattern)),
                 "not built yet: multi-token prediction within documents; use stream");
  }
  if (check.Usable({"data.count_first_token"}) && !data.count_first_token()) {
    check.Refuse("data.count_first_token", absl::StrCat("true with ", check.Named(kPattern)),
                 "not built yet: multi-token prediction within documents; omit the key");
  }
}

}  // namespace tandem::jobspec
