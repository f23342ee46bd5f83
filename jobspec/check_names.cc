// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "jobspec/checks.h"
#include "jobspec/decoder_config.h"
#include "jobspec/field_rules.h"
#include "jobspec/name_list.h"
#include "jobspec/schema.h"
#include "model/unit_parameters.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

constexpr char kNoWeightDecay[] = "training.optimizer.no_weight_decay";
constexpr char kRecompute[] = "training.recompute";
constexpr char kScope[] = "graphs.scope";
constexpr char kFrozen[] = "training.frozen";
constexpr char kKeepGathered[] = "parallelism.fsdp.keep_gathered";
constexpr size_t kMostPatterns = 100;

// Units and parameters of the job's model; nothing where its fields have been refused.
std::optional<std::vector<model::UnitParameters>> UnitsOf(const FieldChecker& check) {
  if (!check.IsOkWithin("model")) {
    return std::nullopt;
  }
  return model::DecoderUnits(ModelConfigOf(check.spec().model()));
}

// What is wrong with one of `words`, which is not among the names that are left. is_known: it was once.
// nothing: the word for an empty list. unknown: what to say of any other word.
std::string WordRemedy(const std::string& word, const std::vector<std::string>& words, bool is_known,
                       const std::string& nothing, const std::string& unknown) {
  if (word.empty()) {
    return words.size() == 1 ? absl::StrCat("write ", nothing, ", or omit the key")
                             : "a name between the commas is empty: remove the extra comma";
  }
  if (word == nothing) {
    return absl::StrCat(nothing, " cannot be combined: omit the others");
  }
  if (is_known) {
    return absl::StrCat(word, " is listed twice");
  }
  const bool means_nothing = word == "none" || word == "off" || word == "no" || word == "false";
  return words.size() == 1 && means_nothing ? absl::StrCat("did you mean ", nothing, "?") : unknown;
}

// What to say of a word that does not name a unit.
std::string UnitRemedy(const std::string& word, const std::vector<std::string>& units,
                       const v1::Model& model) {
  const int64_t layers = model.num_hidden_layers();
  const int64_t depths = NumLayersOf(model) - layers;
  const std::string closest = word.starts_with("layers.") ? "" : Closest(word, units);
  if (!closest.empty()) {
    return absl::StrCat("did you mean ", closest, "?");
  }
  return absl::StrCat(layers > 0 ? absl::StrCat("its layers are 0 to ", layers - 1) : "",
                      layers > 0 && depths > 0 ? "; " : "",
                      depths > 0 ? absl::StrCat("its depths are mtp.0 to mtp.", depths - 1) : "");
}

// "*.input_layernorm.weight" → input, layernorm, weight.
std::set<std::string> WordsOf(const std::string& name) {
  return absl::StrSplit(name, absl::ByAnyChar("._*0123456789"), absl::SkipEmpty());
}

// What to say of a pattern that no parameter matches: which of its words no name has.
std::string PatternRemedy(const std::string& pattern, const std::vector<model::UnitParameters>& units) {
  std::set<std::string> there;
  for (const model::UnitParameters& unit : units) {
    for (const model::Parameter& parameter : unit.parameters) {
      there.merge(WordsOf(parameter.name));
    }
  }
  for (const std::string& word : WordsOf(pattern)) {
    const std::string closest = there.contains(word) ? "" : Closest(word, {there.begin(), there.end()});
    if (!closest.empty()) {
      return absl::StrCat("did you mean ", closest, "?");
    }
  }
  return absl::StrCat("its names are like ", units.front().parameters.front().name, " and ",
                      units.back().parameters.back().name, " (tandem describe --layout lists them)");
}

bool MatchesAny(const std::string& pattern, const std::vector<model::UnitParameters>& units) {
  return std::any_of(units.begin(), units.end(), [&](const model::UnitParameters& unit) {
    return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                       [&](const auto& parameter) { return MatchesName(pattern, parameter.name); });
  });
}

void CheckNoWeightDecay(FieldChecker& check) {
  if (!check.Usable({kNoWeightDecay})) {
    return;
  }
  const std::vector<std::string> patterns =
      NamesIn(check.spec().training().optimizer().no_weight_decay(), "none");
  if (patterns == NamesIn(kDefaultNoWeightDecay, "none")) {
    return;
  }
  const std::vector<std::string> defaults = NamesIn(kMixersNoWeightDecay, "none");  // of all models
  if (patterns.size() > kMostPatterns) {
    check.Refuse(kNoWeightDecay, absl::StrCat("it has ", patterns.size(), " names: use at most ",
                                              kMostPatterns, ", with * for what differs"));
    return;
  }
  const auto units = UnitsOf(check);
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) {
      check.Refuse(kNoWeightDecay, "a name between the commas is empty: remove the extra comma");
    } else if (pattern.find_first_of("?[]\\") != std::string::npos) {
      check.Refuse(kNoWeightDecay, absl::StrCat(platform::Shown(pattern), " has a wildcard other than *"));
    } else if (units.has_value() && !MatchesAny(pattern, *units) &&
               std::find(defaults.begin(), defaults.end(), pattern) == defaults.end()) {
      check.Refuse(kNoWeightDecay,
                   absl::StrCat("no parameter of this model is named ", platform::Shown(pattern), ": ",
                                PatternRemedy(pattern, *units)));
    }
  }
}

// The kinds of nodes whose values may be computed again, each by its word.
constexpr const char* kNodeWords[] = {"attention", "mlp", "mamba", "gated_delta"};

// Whether a layer of the model has a node of that kind.
bool HasNode(const v1::Model& model, std::string_view kind) {
  if (const std::optional<model::LayerPattern> pattern = PatternOf(model); pattern.has_value()) {
    return model::Has(*pattern, kind == "attention" ? model::LayerSymbol::kAttention
                                : kind == "mlp"     ? model::LayerSymbol::kMlp
                                : kind == "mamba"   ? model::LayerSymbol::kMamba
                                                    : model::LayerSymbol::kGatedDelta);
  }
  const bool sparse_alone =
      model.has_moe() && model.moe().decoder_sparse_step() == 1 && model.moe().first_k_dense_replace() == 0;
  return kind == "attention" || (kind == "mlp" && !sparse_alone);
}

void CheckRecompute(FieldChecker& check) {
  if (!check.Usable({kRecompute})) {
    return;
  }
  const std::vector<std::string> words = NamesIn(check.spec().training().recompute(), "off");
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool whole_layers = has("layer");
  const std::set<std::string> nodes(std::begin(kNodeWords), std::end(kNodeWords));
  std::set<std::string> kinds = whole_layers ? std::set<std::string>{"layer"} : nodes;
  for (const std::string& word : words) {
    if (kinds.erase(word) > 0) {
      continue;
    }
    if (whole_layers && nodes.contains(word)) {
      check.Refuse(kRecompute, absl::StrCat(word, " is part of every layer: omit it, or omit layer"));
      return;
    }
    if (word == "head") {
      check.Refuse(kRecompute, "head: more than 1 GiB of logits is never in memory any more: omit it");
      return;
    }
    const std::vector<std::string> known = {"layer", "attention", "mlp", "mamba", "gated_delta", "off"};
    const std::string closest = Closest(word, known);
    check.Refuse(
        kRecompute,
        WordRemedy(word, words, std::find(known.begin(), known.end(), word) != known.end(), "off",
                   absl::StrCat(platform::Shown(word), " is not a kind of node of a layer",
                                closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?"))));
    return;
  }
  for (const char* word : kNodeWords) {
    if (has(word) && check.IsOkWithin("model") && !HasNode(check.spec().model(), word)) {
      check.Refuse(kRecompute,
                   absl::StrCat(word, ": no layer of this model has such a node; use layer, or off"));
      return;
    }
  }
}

// What the job's model lacks of that part of a layer; nothing if it has it.
std::string LacksPart(const v1::JobSpec& spec, const std::string& part) {
  const v1::Model& model = spec.model();
  if (part == "router" || part == "preprocess") {
    return !model.has_moe() ? "this model has no experts: omit it"
           : part == "preprocess" && spec.parallelism().expert() == 1
               ? "nothing is sent to other ranks with parallelism.expert 1: omit it"
               : "";
  }
  const bool has = HasNode(model, part) || (part == "mamba" && HasNode(model, "gated_delta"));
  return has ? "" : "no layer of this model has such a node: omit it";
}

void CheckScope(FieldChecker& check) {
  if (!check.Usable({kScope, "parallelism.expert"}) || !check.IsOkWithin("model")) {
    return;
  }
  const std::vector<std::string> words = NamesIn(check.spec().graphs().scope(), "none");
  const std::vector<std::string> known = {"attention", "router", "preprocess", "mlp", "mamba"};
  std::set<std::string> parts(known.begin(), known.end());
  for (const std::string& word : words) {
    if (parts.erase(word) == 0) {
      const std::string closest = Closest(word, known);
      check.Refuse(
          kScope,
          WordRemedy(word, words, std::find(known.begin(), known.end(), word) != known.end(), "none",
                     absl::StrCat(platform::Shown(word), " is not a part of a layer",
                                  closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?"))));
      return;
    }
    if (const std::string lacks = LacksPart(check.spec(), word); !lacks.empty()) {
      check.Refuse(kScope, absl::StrCat(word, ": ", lacks));
      return;
    }
  }
}

// The units of the model that are none of `words`. Refuses the value that stands at `path` where a word is
// no unit; returns then nothing, as where the model is not known.
std::optional<std::set<std::string>> UnitsWithout(FieldChecker& check, std::string_view path,
                                                  const std::vector<std::string>& words) {
  const auto all = UnitsOf(check);
  if (!check.Usable({path}) || !all.has_value()) {
    return std::nullopt;
  }
  std::set<std::string> units;
  for (const model::UnitParameters& unit : *all) {
    units.insert(unit.name);
  }
  const std::vector<std::string> names(units.begin(), units.end());
  for (const std::string& word : words) {
    if (units.erase(word) == 0) {
      check.Refuse(path,
                   WordRemedy(word, words, std::find(names.begin(), names.end(), word) != names.end(), "none",
                              absl::StrCat(platform::Shown(word), " is not a unit of this model; ",
                                           UnitRemedy(word, names, check.spec().model()))));
      return std::nullopt;
    }
  }
  return units;
}

void CheckKeepGathered(FieldChecker& check) {
  if (!check.Usable({kKeepGathered, "parallelism.fsdp.strategy"})) {
    return;
  }
  const std::vector<std::string> words = NamesIn(check.spec().parallelism().fsdp().keep_gathered(), "none");
  if (words.empty()) {
    return;
  }
  const v1::Strategy strategy = check.spec().parallelism().fsdp().strategy();
  if (strategy != v1::STRATEGY_ZERO3 && !HasReplicas(strategy)) {
    check.Refuse(kKeepGathered,
                 absl::StrCat("none with fsdp.strategy ",
                              EnumText(*v1::Strategy_descriptor()->FindValueByNumber(strategy))),
                 "it keeps weights through the step anyway: omit the key, or use zero3, hsdp or hfsdp");
  } else if (words != std::vector<std::string>{"all"}) {
    UnitsWithout(check, kKeepGathered, words);
  }
}

void CheckFrozen(FieldChecker& check) {
  const std::vector<std::string> words = NamesIn(check.spec().training().frozen(), "none");
  if (words.empty()) {
    return;
  }
  const std::optional<std::set<std::string>> trained = UnitsWithout(check, kFrozen, words);
  if (trained.has_value() && trained->empty()) {
    check.Refuse(kFrozen, "nothing is left to train: remove a unit");
  }
}

}  // namespace

void CheckNames(FieldChecker& check) {
  CheckNoWeightDecay(check);
  CheckRecompute(check);
  CheckScope(check);
  CheckKeepGathered(check);
  CheckFrozen(check);
}

}  // namespace tandem::jobspec
