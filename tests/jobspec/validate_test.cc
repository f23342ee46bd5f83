// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string_view>

#include "google/protobuf/unknown_field_set.h"
#include "jobspec/field_rules.h"
#include "jobspec/jobspec.h"
#include "jobspec/presets.h"
#include "jobspec/schema.h"
#include "ops/row_work.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Good() { return ReadText(kGoodSpec, "").spec; }

std::vector<std::string> Paths(const v1::JobSpec& spec) {
  std::vector<std::string> paths;
  for (const v1::Violation& violation : Validate(spec)) {
    paths.push_back(violation.path());
  }
  return paths;
}

TEST(ValidateTest, AGoodSpecHasNoViolations) { EXPECT_EQ(ToText(Validate(Good())), ""); }

TEST(ValidateTest, UnknownBinaryFieldsAreRefusedWhereverTheyAre) {
  v1::JobSpec spec = Good();
  spec.GetReflection()->MutableUnknownFields(&spec)->AddVarint(99, 1);
  v1::Training& training = *spec.mutable_training();
  training.GetReflection()->MutableUnknownFields(&training)->AddLengthDelimited(77, "x");
  v1::JobSpec received;
  ASSERT_TRUE(received.ParseFromString(spec.SerializeAsString()));
  EXPECT_EQ(ToText(Validate(received)),
            "#99: an unknown field is not allowed; allowed: fields of this version; the client is of another "
            "version "
            "than the controller: use one of the same version\n"
            "training.#77: an unknown field is not allowed; allowed: fields of this version; the client is "
            "of another "
            "version than the controller: use one of the same version\n");
}

// As many as one request can hold: nothing is said of each.
TEST(ValidateTest, OverlongListIsRefusedUnread) {
  v1::JobSpec spec = Good();
  spec.clear_training();
  for (int i = 0; i < 2'000'000; ++i) {
    spec.mutable_data()->add_sources();
  }
  const std::vector<v1::Violation> violations = Validate(spec);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].path(), "data.sources");
  EXPECT_EQ(violations[0].value(), "a list of 2000000 entries");
  EXPECT_EQ(violations[0].remedy(), "send fewer");
}

TEST(ValidateTest, AThousandViolationsAreEnough) {
  v1::JobSpec spec = Good();
  spec.mutable_data()->clear_train();
  for (int i = 0; i < kMostListEntries; ++i) {
    v1::DataSource& source = *spec.mutable_data()->add_sources();
    source.set_weight(-1);
    source.set_format(static_cast<v1::DataFormat>(99));
  }
  spec.mutable_training()->set_steps(0);
  const std::vector<v1::Violation> violations = Validate(spec);
  ASSERT_EQ(violations.size(), kMaxViolations + 1);
  EXPECT_EQ(violations.back().path(), "");
  EXPECT_EQ(violations.back().value(), "more than 1000 things are wrong");
}

TEST(ValidateTest, AHundredSourcesMayHoldOutTheirEnds) {
  v1::JobSpec spec = Good();
  spec.mutable_data()->clear_train();
  for (int i = 0; i < 100; ++i) {
    spec.mutable_data()->add_sources()->set_path("/text-" + std::to_string(i));
  }
  EXPECT_THAT(Paths(spec), ElementsAre());
  spec.mutable_data()->add_sources()->set_path("/one-more");
  EXPECT_THAT(Paths(spec), ElementsAre("data.sources"));
  EXPECT_THAT(ToText(Validate(spec)),
              HasSubstr("data.sources: a list of 101 entries is not allowed; allowed: 1 to 100 entries where "
                        "the end of each is held out; each end has a loss in reports: "));
  v1::JobSpec named = spec;
  named.mutable_data()->set_validation("/held-out");
  EXPECT_THAT(Paths(named), ElementsAre());
  spec.mutable_data()->set_validation_fraction(0);
  EXPECT_THAT(Paths(spec), ElementsAre());
}

TEST(ValidateTest, LongPathNeedsAName) {
  for (const std::string& path : {std::string("/"), "/" + std::string(101, 'x')}) {
    v1::JobSpec spec = Good();
    spec.mutable_data()->clear_train();
    v1::DataSource& source = *spec.mutable_data()->add_sources();
    source.set_path(path);
    EXPECT_THAT(ToText(Validate(spec)),
                HasSubstr("; its last part cannot be its name (1 to 100 characters): give name\n"));
    source.set_name("all");
    EXPECT_THAT(Paths(spec), ElementsAre());
  }
}

TEST(ValidateTest, UnknownFieldsOfAnotherBuildAreNamed) {
  v1::JobSpec resolved = Resolve(Good());
  EXPECT_EQ(ToText(CheckKnown(resolved)), "");
  v1::Fsdp& fsdp = *resolved.mutable_parallelism()->mutable_fsdp();
  fsdp.GetReflection()->MutableUnknownFields(&fsdp)->AddVarint(99, 1);
  v1::JobSpec received;
  ASSERT_TRUE(received.ParseFromString(resolved.SerializeAsString()));
  EXPECT_EQ(ToText(CheckKnown(received)),
            "parallelism.fsdp.#99: an unknown field is not allowed; allowed: fields of this version; the "
            "controller is of another version than this worker: replace this one's programs\n");
}

TEST(ValidateTest, NormedHeadsHaveAGpuLimit) {
  v1::JobSpec spec = Good();
  spec.mutable_model()->set_model_type("qwen3_moe");
  spec.mutable_model()->mutable_moe()->set_num_experts(4);
  spec.mutable_model()->mutable_moe()->set_num_experts_per_tok(2);
  spec.mutable_model()->set_head_dim(ops::kMostGpuNormedHeadDim);
  EXPECT_EQ(ToText(Validate(spec)), "");
  spec.mutable_model()->set_head_dim(ops::kMostGpuNormedHeadDim + 2);
  EXPECT_THAT(Paths(spec), ElementsAre("model.head_dim"));
  spec.mutable_resources()->set_device(v1::DEVICE_CPU);
  EXPECT_EQ(ToText(Validate(spec)), "");
}

// Replicas communicate over the group of all ranks where routers are balanced over the global batch, and else
// not.
TEST(ValidateTest, GroupOptionsNeedTheGroup) {
  v1::JobSpec spec = Good();
  spec.mutable_model()->set_model_type("mixtral");
  v1::MixtureOfExperts& moe = *spec.mutable_model()->mutable_moe();
  moe.set_num_experts(4);
  moe.set_num_experts_per_tok(2);
  moe.set_router_aux_loss_coef(0.1);
  spec.mutable_resources()->set_device(v1::DEVICE_CUDA);
  v1::Parallelism& parallelism = *spec.mutable_parallelism();
  parallelism.set_ranks(4);
  parallelism.mutable_fsdp()->set_strategy(v1::STRATEGY_HSDP);
  parallelism.mutable_nccl()->mutable_dp_cp()->set_max_ctas(8);
  EXPECT_THAT(Paths(spec), ElementsAre("parallelism.nccl.dp_cp"));
  moe.set_router_aux_loss_scope(v1::BALANCE_SCOPE_GLOBAL);
  EXPECT_EQ(ToText(Validate(spec)), "");
}

TEST(ValidateTest, EnumNumbersThatNoTextHasAreRefused) {
  v1::JobSpec spec = Good();
  spec.mutable_precision()->set_compute(static_cast<v1::ComputeType>(42));
  spec.mutable_resources()->set_device(v1::DEVICE_UNSPECIFIED);
  EXPECT_EQ(
      ToText(Validate(spec)),
      "precision.compute: value 42 is not allowed; allowed: fp32, fp64, bf16; the client sent a value that "
      "this version "
      "does not know\n"
      "resources.device: unspecified is not allowed; allowed: auto, cpu, cuda; the client sent a value that "
      "this version "
      "does not know\n");
}

TEST(ValidateTest, NumbersThatNoTextHasAreRefused) {
  v1::JobSpec spec = Good();
  spec.mutable_training()->mutable_optimizer()->set_learning_rate(std::nan(""));
  spec.mutable_training()->set_clip_grad_norm(INFINITY);
  EXPECT_EQ(ToText(Validate(spec)),
            "training.optimizer.learning_rate: nan is not allowed; allowed: more than 0 and at most 1; use a "
            "number\n"
            "training.clip_grad_norm: inf is not allowed; allowed: 0 to 1e9; use a smaller number\n");
}

TEST(ValidateTest, RelativePathsMeanNothingElsewhere) {
  v1::JobSpec spec = Good();
  spec.mutable_data()->set_train("text/*.txt");
  spec.mutable_data()->set_validation("v");
  spec.mutable_checkpoint()->set_directory("runs/a");
  spec.mutable_checkpoint()->set_resume("runs/a/step-5");
  EXPECT_THAT(Paths(spec),
              ElementsAre("data.train", "data.validation", "checkpoint.directory", "checkpoint.resume"));
  EXPECT_EQ(ToText(Validate(spec)[0]),
            "data.train: the relative path text/*.txt is not allowed; allowed: absolute path of a file, a "
            "folder or a "
            "glob; other machines have another working directory: write the whole path (tandem submit and "
            "tandem run "
            "do so)");
}

TEST(ValidateTest, LongPathsAreRefused) {
  v1::JobSpec spec = Good();
  spec.mutable_data()->set_train("/" + std::string(4000, 'a'));
  EXPECT_THAT(ToText(Validate(spec)), HasSubstr("at most 4000 bytes; it has 4001"));
}

TEST(ValidateTest, ConfigFileMustBecomeFields) {
  v1::JobSpec spec = Good();
  spec.mutable_model()->Clear();
  spec.mutable_model()->set_hugging_face("/m/config.json");
  EXPECT_EQ(
      ToText(Validate(spec)),
      "model.hugging_face: /m/config.json is not allowed; tandem submit and tandem run replace it by the "
      "fields of that file: use them, or give the fields yourself\n");
}

TEST(ValidateTest, ViolationsComeInTheOrderOfTheProto) {
  v1::JobSpec spec = Good();
  spec.set_priority(1);
  spec.mutable_parallelism()->set_tensor(2);
  spec.mutable_parallelism()->set_ranks(0);
  spec.mutable_training()->set_steps(0);
  spec.mutable_data()->set_tokenizer("x");
  spec.mutable_model()->set_head_dim(3);
  spec.set_name("");
  EXPECT_THAT(Paths(spec), ElementsAre("name", "model.head_dim", "data.tokenizer", "training.steps",
                                       "parallelism.ranks", "parallelism.tensor", "priority"));
}

TEST(ValidateTest, AnEmptySpecNamesWhatAJobNeeds) {
  EXPECT_THAT(Paths(v1::JobSpec()),
              ElementsAre("model", "data.train", "training.steps", "training.sequence_length",
                          "training.micro_batch_size", "training.global_batch_size"));
}

// Sets the number at `path`, unless it is in an entry of a list.
void Set(v1::JobSpec& spec, std::string_view path, double number) {
  using google::protobuf::FieldDescriptor;
  google::protobuf::Message* message = &spec;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const FieldDescriptor* block =
        message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    if (block->is_repeated()) {
      return;
    }
    message = message->GetReflection()->MutableMessage(message, block);
    path.remove_prefix(dot + 1);
  }
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(std::string(path));
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    message->GetReflection()->SetDouble(message, field, number);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    message->GetReflection()->SetInt32(message, field, static_cast<int32_t>(number));
  } else {
    message->GetReflection()->SetInt64(message, field, static_cast<int64_t>(number));
  }
}

TEST(ValidateTest, ViolationsAreAboutWrittenFields) {
  int violations = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    v1::JobSpec spec = Good();
    spec.mutable_model()->set_preset(PresetNames()[random() % PresetNames().size()]);
    for (unsigned fields = 1 + random() % 3; fields > 0; --fields) {
      const RangeRule& rule = RangeRules()[random() % RangeRules().size()];
      const std::vector<double> numbers = {rule.min - 1, rule.min, 3, 4, 20, 130, rule.max, rule.max + 1};
      Set(spec, rule.path, numbers[random() % numbers.size()]);
    }
    for (const char* path : {"parallelism.tensor", "parallelism.context", "parallelism.pipeline"}) {
      if (random() % 16 == 0) {
        Set(spec, path, 2);
      }
    }
    for (const v1::Violation& violation : Validate(spec)) {
      ++violations;
      EXPECT_TRUE(violation.value().empty() || FindValue(spec, violation.path()).message != nullptr)
          << "seed " << seed << ": " << ToText(violation);
    }
  }
  EXPECT_GT(violations, 1000);
}

TEST(ValidateTest, LimitsAreInclusive) {
  v1::JobSpec spec = Good();
  spec.set_name(std::string(63, 'a'));
  spec.mutable_training()->set_seed(UINT64_MAX);
  spec.mutable_training()->mutable_schedule()->set_warmup_steps(10);
  spec.mutable_training()->mutable_optimizer()->set_learning_rate(1);
  spec.mutable_training()->mutable_optimizer()->set_beta1(0);
  spec.mutable_data()->set_validation_fraction(0.5);
  spec.mutable_model()->set_max_position_embeddings(16);
  spec.mutable_parallelism()->set_order("dp");
  spec.mutable_parallelism()->set_ranks(4);
  EXPECT_EQ(ToText(Validate(spec)), "");
}

TEST(LocateTest, AMissingFieldStandsAtItsBlock) {
  ReadResult read = ReadText("training:\n  steps: 5\n", "f");
  std::vector<v1::Violation> violations = Validate(read.spec);
  Locate(read, violations);
  for (const v1::Violation& violation : violations) {
    EXPECT_EQ(violation.file(), "f");
    EXPECT_EQ(violation.line(), violation.path().starts_with("training") ? 1 : 0) << violation.path();
  }
}

TEST(ToTextTest, IsOneLineWhateverAPeerSends) {
  v1::Violation violation;
  violation.set_path("a\nb");
  violation.set_value("v\x1b[0m" + std::string(10000, 'x'));
  violation.set_allowed("l\r");
  violation.set_remedy("r\xE2\x80\xAE");
  const std::string text = ToText(violation);
  EXPECT_THAT(text, HasSubstr("a\\nb: v\\x1b[0mxxx"));
  EXPECT_THAT(text, HasSubstr("... is not allowed; allowed: l\\r; r\\u202e"));
  EXPECT_LT(text.size(), 400);
}

}  // namespace
}  // namespace tandem::jobspec
