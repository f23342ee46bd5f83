// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/config_json.h"
#include "google/protobuf/message.h"
#include "jobspec/hugging_face_families.h"
#include "jobspec/hugging_face_fields.h"
#include "jobspec/hugging_face_keys.h"
#include "jobspec/hugging_face_mixers.h"
#include "jobspec/hugging_face_rope.h"
#include "jobspec/hugging_face_window.h"
#include "jobspec/model_types.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/files.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

using Json = nlohmann::json;

constexpr char kHuggingFace[] = "model.hugging_face";

class HuggingFaceReader {
 public:
  HuggingFaceReader(v1::Model& model, std::vector<v1::Violation>& violations)
      : model_(model), violations_(violations) {}

  // Fills the fields that the spec leaves out.
  void Read() {
    const size_t before = violations_.size();
    std::string file = model_.hugging_face();
    std::error_code error;
    if (std::filesystem::is_directory(file, error)) {
      file += "/config.json";
    }
    if (!Load(file)) {
      return;
    }
    FindFamily();
    MoveRopeParameters();
    if (family_ != nullptr) {
      MoveExperts();
      AddDefaults(*family_, json_);
    }
    ReadScaling();
    const auto refuse = [this](const std::string& value, const std::string& allowed,
                               const std::string& remedy) { Refuse(value, allowed, remedy); };
    refused_ = CheckKeys(json_, family_, refuse);
    const ModelType* const type = family_ == nullptr ? nullptr : FindModelType(family_->model_type);
    Json of_window = json_;
    if (type != nullptr && (type->pairs || type->mixed_pairs)) {
      of_window.erase("layer_types");  // which say something else
    }
    ReadSlidingWindow(of_window, family_ == nullptr ? WindowKeys::kNone : family_->window, model_, refuse);
    if (type == nullptr) {
      return;
    }
    if (type->letters != nullptr) {
      ReadPatternedModel();
    } else {
      ReadUsualModel();
    }
    if (violations_.size() == before) {
      if (!model_.has_model_type()) {
        model_.set_model_type(family_->model_type);
      }
      model_.clear_hugging_face();
    }
  }

 private:
  void ReadUsualModel() {
    ReadFields(kSizeKeys, model_);
    if (family_->has_latent_attention) {
      ReadFields(kLatentAttentionKeys, *model_.mutable_latent_attention());  // its head_dim is another
    } else {
      ReadField({.field = "head_dim", .may_be_null = true}, model_);
    }
    ReadFields(kOtherKeys, model_);
    if (FindModelType(family_->model_type)->has_multipliers) {
      ReadFields(kMultiplierKeys, model_);
    }
    if (!model_.has_attention_bias() && HasBiases(json_, *family_)) {
      model_.set_attention_bias(v1::ATTENTION_BIAS_ALL);
    }
    if (family_->experts != nullptr) {
      ReadExperts(*model_.mutable_moe());
    }
  }

  // What the layers of a pattern have is read where there is such a layer.
  void ReadPatternedModel() {
    const std::string_view type = family_->model_type;
    const bool own = type == "hybrid" || type == "qwen3_next";
    const bool granite = type == "granitemoehybrid";
    const bool pairs = FindModelType(type)->pairs;
    ReadFields(kPatternedKeys, model_);
    ReadField({"rms_norm_eps", own || pairs ? "rms_norm_eps" : "layer_norm_epsilon"}, model_);
    std::string pattern = "M";
    if (type == "mamba2") {
      ReadField({"num_hidden_layers"}, model_);
    } else {
      const KeyProblem problem = type == "qwen3_next" ? ReadIntervals(json_, model_)
                                 : pairs              ? ReadPairs(json_, type == "bamba", model_)
                                                      : ReadMixerPattern(json_, model_);
      if (!problem.value.empty()) {
        Refuse(problem.value, problem.allowed, "mend the file");
        return;
      }
      pattern = model_.hybrid_pattern();
    }
    const auto has = [&](char letter) { return pattern.find(letter) != pattern.npos; };
    if (has('*')) {
      ReadFields(kAttentionKeys, model_);
      if (own) {
        ReadField({.field = "rotary_embedding", .may_be_null = true}, model_);
        ReadField({.field = "partial_rotary_factor", .may_be_null = true}, model_);
      } else if (granite) {
        ReadPositions();
      }
      if ((own || pairs) && (!model_.has_rotary_embedding() || model_.rotary_embedding())) {
        ReadField({"rope_theta"}, model_);
      }
    }
    if (granite) {
      ReadFields(FieldKeys(kMultiplierKeys).first(has('*') ? 4 : 3), model_);
    }
    if (has('-')) {
      ReadField({"intermediate_size", granite ? "shared_intermediate_size" : "intermediate_size"}, model_);
    }
    if (has('E') && (granite || own)) {
      ReadFields(granite ? FieldKeys(kGraniteExpertKeys) : FieldKeys(kPatternedExpertKeys),
                 *model_.mutable_moe());
    }
    if (has('M')) {
      ReadMamba(*model_.mutable_mamba());
    }
    if (has('G')) {
      ReadFields(kDeltaNetKeys, *model_.mutable_gated_delta_net());
      ReadField(kDeltaNetChunkKey, *model_.mutable_gated_delta_net());
    }
    for (const std::string& problem : MixerProblems(json_)) {
      Refuse(problem, "a file whose keys fit each other", "mend the file, or use another model");
    }
  }

  // Of granitemoehybrid, whether queries and keys are rotated: transformers does so for "rope" alone.
  void ReadPositions() {
    constexpr char kKey[] = "position_embedding_type";
    const Json kind = Of(kKey);
    if (!kind.is_null() && kind != "rope" && kind != "nope") {
      Refuse(absl::StrCat(kKey, " ", kind.dump()), "\"rope\", \"nope\", null",
             "mend the file, or use another model");
    } else if (!model_.has_rotary_embedding()) {
      model_.set_rotary_embedding(kind == "rope");
    }
  }

  void ReadMamba(v1::Mamba& mamba) {
    if (!mamba.has_head_dim()) {
      if (const KeyProblem problem = ReplaceAutoHeadDim(json_); !problem.value.empty()) {
        Refuse(problem.value, problem.allowed, "mend the file");
        return;
      }
    }
    ReadFields(MixerKeysOf(family_->model_type), mamba);
  }

  void Refuse(const std::string& value, const std::string& allowed, const std::string& remedy) {
    violations_.push_back(MakeViolation(kHuggingFace, value, allowed, remedy));
  }

  bool Load(const std::string& file) {
    platform::Files& files = platform::SystemFiles();
    const absl::StatusOr<int64_t> bytes = files.Size(file);
    if (bytes.ok() && *bytes > checkpoint::kMostConfigBytes) {
      Refuse(file, absl::StrCat("a config.json of at most ", checkpoint::kMostConfigBytes, " bytes"),
             "is this the right file?");
      return false;
    }
    const absl::StatusOr<std::string> text = bytes.ok() ? files.Read(file) : bytes.status();
    if (!text.ok()) {
      Refuse(file, "path of a config.json",
             std::string(absl::StripPrefix(text.status().message(), absl::StrCat("open ", file, ": "))));
      return false;
    }
    absl::StatusOr<Json> config = checkpoint::ParseConfig<Json>(*text);
    if (!config.ok()) {
      Refuse(file, "a JSON object",
             absl::StrCat("is this the config.json of a model? ", config.status().message()));
      return false;
    }
    json_ = *std::move(config);
    return true;
  }

  Json Of(const char* key) const { return json_.value(key, Json()); }

  void FindFamily() {
    family_ = FamilyOf(json_);
    if (family_ != nullptr) {
      return;
    }
    const Json architectures = Of("architectures");
    const auto text = [](std::string* out, const HuggingFaceFamily& known) {
      absl::StrAppend(out, known.architecture);
    };
    Refuse(absl::StrCat("architecture ",
                        architectures.is_null() ? Of("model_type").dump() : architectures.dump()),
           absl::StrJoin(HuggingFaceFamilies(), ", ", text),
           "not built yet: other architectures; use one of these");
  }

  // Auxiliary losses are of jobs, not of models: theirs are another formula, over all layers at once.
  void ReadExperts(v1::MixtureOfExperts& moe) {
    ReadField({"num_experts", family_->experts}, moe);
    ReadField({"num_experts_per_tok"}, moe);
    if (std::string_view(family_->model_type) == "mixtral") {
      return;  // the others follow
    }
    ReadFields(kExpertKeys, moe);
    if (family_->has_latent_attention) {
      ReadFields(kDeepseekExpertKeys, moe);
      // Greedy choice knows no groups, whatever their number is.
      if (FindModelType(family_->model_type)->score == v1::ROUTER_SCORE_SIGMOID ||
          Of("topk_method") == kGroupLimited) {
        ReadFields(kGroupedExpertKeys, moe);
      }
    } else {
      ReadFields(kSparseLayerKeys, moe);
    }
  }

  // Newer files have another name for their number.
  void MoveExperts() {
    if (family_->experts_too == nullptr || !json_.contains(family_->experts_too)) {
      return;
    }
    const Json too = Of(family_->experts_too);
    if (!json_.contains(family_->experts)) {
      json_[family_->experts] = too;
    } else if (!too.is_null() && too != Of(family_->experts)) {
      Refuse(absl::StrCat(family_->experts_too, " ", too.dump()),
             absl::StrCat(Of(family_->experts).dump(), ", as in ", family_->experts), "mend the file");
    }
  }

  const char* RopeName() const {
    return Of("rope_scaling").empty() ? "rope_parameters" : "rope_scaling";  // wins where both are there
  }

  // Newer files keep these fields in rope_parameters.
  void MoveRopeParameters() {
    const Json rope = Of(RopeName());
    for (const char* const key : {"rope_theta", "partial_rotary_factor"}) {
      const Json of_rope = rope.is_object() ? rope.value(key, Json()) : Json();
      const Json own = Of(key);
      if (of_rope.is_null()) {
        continue;
      }
      if (own.is_null()) {
        json_[key] = of_rope;
      } else if (of_rope != own) {
        Refuse(absl::StrCat(key, " ", own.dump()), absl::StrCat(of_rope.dump(), ", as in rope_parameters"),
               "mend the file");
      }
    }
  }

  void ReadScaling() {
    const Json rope = Of(RopeName());
    if (rope.is_null()) {
      return;
    }
    v1::RopeScaling scaling;
    if (const std::string problem = ReadRopeScaling(json_, rope, scaling); !problem.empty()) {
      Refuse(absl::StrCat(RopeName(), " ", rope.dump()), "of the type linear, llama3, yarn or default",
             absl::StrCat(problem, ": use a model without it"));
    } else if (scaling.has_type() && !model_.has_rope_scaling()) {
      *model_.mutable_rope_scaling() = scaling;
    }
  }

  void ReadFields(FieldKeys fields, google::protobuf::Message& message) {
    for (const FieldKey& field : fields) {
      ReadField(field, message);
    }
  }

  // Sets a field of `message` where the job leaves it out.
  void ReadField(const FieldKey& field, google::protobuf::Message& message) {
    if (message.GetReflection()->HasField(message, message.GetDescriptor()->FindFieldByName(field.field))) {
      return;
    }
    const Json value = Of(field.key);
    if ((value.is_null() && field.may_be_null) || refused_.contains(field.key)) {
      return;
    }
    if (const std::string expected = SetField(message, field.field, value); !expected.empty()) {
      Refuse(absl::StrCat(field.key, " ", value.dump()), expected, "mend the file");
    }
  }

  v1::Model& model_;
  std::vector<v1::Violation>& violations_;
  Json json_;
  const HuggingFaceFamily* family_ = nullptr;  // of the file, where it is known
  std::set<std::string> refused_;              // keys
};

}  // namespace

std::vector<v1::Violation> ReadHuggingFace(v1::Model& model) {
  std::vector<v1::Violation> violations;
  HuggingFaceReader(model, violations).Read();
  return violations;
}

}  // namespace tandem::jobspec
