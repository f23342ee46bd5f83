// SPDX-License-Identifier: Apache-2.0
#include "jobspec/hugging_face_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "jobspec/hugging_face_fields.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

using Config = nlohmann::json;

constexpr char kOriginal[] = "original_max_position_embeddings";

class RopeReader {
 public:
  RopeReader(const Config& config, const Config& rope, v1::RopeScaling& scaling)
      : config_(config), rope_(rope), scaling_(scaling) {}

  std::string Read() {
    if (!rope_.is_object()) {
      return "it is not an object";
    }
    for (const auto& [key, value] : rope_.items()) {
      if (value.is_object()) {
        return absl::StrCat("there is one for each kind of layer (", platform::Shown(key), ")");
      }
    }
    if (Has("rope_type") && Has("type") && rope_["rope_type"] != rope_["type"]) {
      return "its rope_type and type differ";
    }
    const Config type = Has("rope_type") ? rope_["rope_type"]
                        : Has("type")    ? rope_["type"]
                                         : Config("default");
    if (type == "default") {
      Allow({});
    } else if (type == "linear") {
      scaling_.set_type(v1::ROPE_TYPE_LINEAR);
      Allow({"factor"});
      TakeNumber("factor");
    } else if (type == "llama3") {
      scaling_.set_type(v1::ROPE_TYPE_LLAMA3);
      Allow({"factor", "low_freq_factor", "high_freq_factor", kOriginal});
      for (const char* const key : {"factor", "low_freq_factor", "high_freq_factor"}) {
        TakeNumber(key);
      }
      ReadOriginal();
    } else if (type == "yarn") {
      scaling_.set_type(v1::ROPE_TYPE_YARN);
      Allow({"factor", kOriginal, "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor",
             "truncate"});
      ReadYarn();
    } else {
      return absl::StrCat("type ", platform::Shown(type.dump()), " is none of linear, llama3, yarn, default");
    }
    return problem_;
  }

 private:
  bool Has(const char* key) const { return rope_.contains(key) && !rope_[key].is_null(); }

  void Problem(const std::string& text) { problem_ = problem_.empty() ? text : problem_; }

  void Allow(std::set<std::string> keys) {
    keys.insert({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    for (const auto& [key, value] : rope_.items()) {
      if (!value.is_null() && !keys.contains(key)) {
        Problem(absl::StrCat("its key ", platform::Shown(key), " is not known for this type"));
      }
    }
  }

  void TakeNumber(const char* key) {
    if (!Has(key) || !SetField(scaling_, key, rope_[key]).empty()) {
      Problem(absl::StrCat(key, Has(key) ? " is not a number" : " is missing"));
    }
  }

  // The one outside wins, and without any it is the length that the model is meant for.
  void ReadOriginal() {
    const Config own = config_.value(kOriginal, Config());
    const Config inner = rope_.value(kOriginal, Config());
    const Config length = !own.is_null() ? own : !inner.is_null() ? inner : Longest();
    const double tokens = length.is_number() ? length.get<double>() : 0;
    if (!(tokens >= 1 && tokens <= 1 << 30 && std::floor(tokens) == tokens)) {
      Problem(absl::StrCat(kOriginal, " is not a number of tokens"));
      return;
    }
    scaling_.set_original_max_position_embeddings(static_cast<int64_t>(tokens));
  }

  Config Longest() const { return config_.value("max_position_embeddings", Config()); }

  void ReadYarn() {
    ReadOriginal();
    if (!Has("factor") && Longest().is_number()) {
      scaling_.set_factor(Longest().get<double>() / static_cast<double>(std::max<int64_t>(
                                                        1, scaling_.original_max_position_embeddings())));
    } else {
      TakeNumber("factor");
    }
    for (const char* const key : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"}) {
      if (Has(key) && rope_[key] != 0) {  // which is as if there were none
        TakeNumber(key);
      }
    }
    if (Has("truncate") && !SetField(scaling_, "truncate", rope_["truncate"]).empty()) {
      Problem("truncate is neither true nor false");
    }
  }

  const Config& config_;
  const Config& rope_;
  v1::RopeScaling& scaling_;
  std::string problem_;  // the first
};

}  // namespace

std::string ReadRopeScaling(const nlohmann::json& config, const nlohmann::json& rope,
                            v1::RopeScaling& scaling) {
  return RopeReader(config, rope, scaling).Read();
}

nlohmann::ordered_json RopeScalingJson(const v1::RopeScaling& scaling) {
  nlohmann::ordered_json json;
  json["rope_type"] = scaling.type() == v1::ROPE_TYPE_LINEAR   ? "linear"
                      : scaling.type() == v1::ROPE_TYPE_LLAMA3 ? "llama3"
                                                               : "yarn";
  WriteFields(kScalingKeys, scaling, json);
  return json;
}

}  // namespace tandem::jobspec
