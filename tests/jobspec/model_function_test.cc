// SPDX-License-Identifier: Apache-2.0
#include "jobspec/model_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::Model ModelOf(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, spec.mutable_model())) << text;
  return Resolve(spec).model();
}

constexpr char kDeepseek[] =
    "model_type: 'deepseek_v3' hidden_size: 64 intermediate_size: 96 num_hidden_layers: 2 "
    "num_attention_heads: 4 vocab_size: 256 moe { num_experts: 8 num_experts_per_tok: 2 } "
    "latent_attention { q_lora_rank: 12 kv_lora_rank: 10 qk_nope_head_dim: 6 qk_rope_head_dim: 4 v_head_dim: "
    "8 }";

// Sets the field to something that it is not.
void Change(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, reflection.GetInt32(message, &field) + 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, reflection.GetInt64(message, &field) + 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, reflection.GetDouble(message, &field) + 0.125);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, !reflection.GetBool(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, reflection.GetString(message, &field) + "x");
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field, reflection.GetEnumValue(message, &field) == 2 ? 1 : 2);
    default:
      FAIL() << field.full_name() << " is of a type that this test does not know";
  }
}

// Changes every field of `part`, a block of `model`, in turn; adds the paths of those that make no
// difference.
void AddFieldsThatMakeNone(const std::string& there, const v1::Model& model,
                           const std::function<google::protobuf::Message*(v1::Model&)>& part,
                           const std::string& path, std::set<std::string>& none) {
  v1::Model copy = model;
  const google::protobuf::Descriptor& type = *part(copy)->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() != nullptr) {
      continue;
    }
    copy = model;
    Change(*part(copy), *type.field(i));
    const std::string changed = JoinPath(path, type.field(i)->name());
    const auto differences = ModelDifferences(there, copy);
    ASSERT_TRUE(differences.ok()) << differences.status();
    if (differences->empty()) {
      none.insert(changed);
    } else {
      EXPECT_THAT(*differences, ElementsAre(testing::StartsWith(changed + " is ")));
    }
  }
}

TEST(ModelFunctionTest, FieldsThatOnlyTrainAreExcluded) {
  const v1::Model model = ModelOf(kDeepseek);
  const std::string there = ModelFunctionText(model);
  EXPECT_THAT(ModelDifferences(there, model).value(), IsEmpty());
  std::set<std::string> none;
  AddFieldsThatMakeNone(
      there, model, [](v1::Model& m) { return &m; }, "model", none);
  AddFieldsThatMakeNone(
      there, model, [](v1::Model& m) { return m.mutable_moe(); }, "model.moe", none);
  AddFieldsThatMakeNone(
      there, model, [](v1::Model& m) { return m.mutable_latent_attention(); }, "model.latent_attention",
      none);
  EXPECT_THAT(
      none, ElementsAre("model.hugging_face", "model.initializer_range", "model.max_position_embeddings",
                        "model.moe.capacity_factor", "model.moe.drop_policy", "model.moe.pad_to_capacity",
                        "model.moe.router_aux_loss_coef", "model.moe.router_aux_loss_scope",
                        "model.moe.router_bias_update_rate", "model.moe.router_z_loss_coef", "model.preset"));
}

TEST(ModelFunctionTest, ABlockThatOneDoesNotHaveDiffers) {
  v1::Model dense = ModelOf(kDeepseek);
  const std::string sparse = ModelFunctionText(dense);
  dense.clear_moe();
  const auto differences = ModelDifferences(sparse, dense);
  ASSERT_TRUE(differences.ok()) << differences.status();
  EXPECT_THAT(*differences, testing::Contains("model.moe.num_experts is 0, and 8 there"));
}

TEST(ModelFunctionTest, MissingFieldIsItsDefault) {
  v1::Model model = ModelOf("hidden_size: 64 num_attention_heads: 4");
  const std::string older = R"({"hidden_size": "64", "num_attention_heads": "4"})";
  EXPECT_THAT(ModelDifferences(older, model).value(), IsEmpty());
  model.set_rope_theta(500000);
  EXPECT_THAT(ModelDifferences(older, model).value(),
              ElementsAre("model.rope_theta is 5e5, and 10000 there"));
}

// Checkpoints of builds that did not have the field hold the same function.
TEST(ModelFunctionTest, FieldOfTheTypeMayBeAbsent) {
  for (const char* const type : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "olmo2",
                                 "deepseek_v2", "deepseek_v3"}) {
    const v1::Model model = ModelOf(absl::StrCat(
        "model_type: '", type, "' hidden_size: 64 num_attention_heads: 4 moe { num_experts: 4 }"));
    const std::vector<std::pair<std::string, std::function<void(v1::Model&)>>> fields = {
        {"attention_bias", [](v1::Model& m) { m.clear_attention_bias(); }},
        {"qk_norm", [](v1::Model& m) { m.clear_qk_norm(); }},
        {"norms", [](v1::Model& m) { m.clear_norms(); }},
        {"moe.score", [](v1::Model& m) { m.mutable_moe()->clear_score(); }}};
    for (const auto& [name, clear] : fields) {
      v1::Model older = model;
      clear(older);
      EXPECT_THAT(ModelDifferences(ModelFunctionText(older), model).value(), IsEmpty()) << type << name;
    }
  }
}

TEST(ModelFunctionTest, LayersOfAWindowHaveOneText) {
  const auto of = [](const std::string& layers) {
    return ModelOf("model_type: 'qwen2' num_hidden_layers: 8 sliding_window: 8" +
                   (layers.empty() ? "" : " window_layers: '" + layers + "'"));
  };
  EXPECT_EQ(of("").window_layers(), "all");
  EXPECT_EQ(of("0-3,4,5-7").window_layers(), "all");
  EXPECT_EQ(of("5,6,7").window_layers(), "5-7");
  EXPECT_EQ(of("1,3,5-6").window_layers(), "1,3,5-6");
  EXPECT_EQ(of("3,2").window_layers(), "3,2") << "which is refused";
  const std::string there = ModelFunctionText(of(""));
  v1::Model older = of("");
  older.clear_window_layers();
  EXPECT_THAT(ModelDifferences(ModelFunctionText(older), of("")).value(), IsEmpty());
  EXPECT_THAT(ModelDifferences(there, of("2-3")).value(),
              ElementsAre("model.window_layers is 2-3, and all there"));
  EXPECT_THAT(ModelDifferences(there, ModelOf("model_type: 'qwen2' num_hidden_layers: 8")).value(),
              testing::SizeIs(2));
}

TEST(ModelFunctionTest, AFieldOfANewerBuildIsRefused) {
  const auto differences = ModelDifferences(R"({"hidden_size": "64", "logit_cap": 5})", v1::Model());
  EXPECT_EQ(differences.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(differences.status().message(), HasSubstr("logit_cap"));
  EXPECT_THAT(differences.status().message(), HasSubstr("use the build that wrote it or a newer one"));
}

}  // namespace
}  // namespace tandem::jobspec
