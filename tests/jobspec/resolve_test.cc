// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

v1::JobSpec Resolved(const std::string& text) {
  const ReadResult read = ReadText(text, "");
  EXPECT_EQ(ToText(read.violations), "");
  return Resolve(read.spec);
}

TEST(ResolveTest, FillsEveryDefault) {
  v1::JobSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(api_version: "tandem/v1" name: "job"
         model { preset: "llama-tiny" model_type: "llama" hidden_size: 128 intermediate_size: 352
                 num_hidden_layers: 4 num_attention_heads: 4 num_key_value_heads: 4 head_dim: 32 vocab_size: 256
                 rms_norm_eps: 1e-5 rope_theta: 10000 tie_word_embeddings: false initializer_range: 0.02
                 attention_bias: ATTENTION_BIAS_NONE qk_norm: QK_NORM_NONE norms: NORM_PLACE_BEFORE }
         data { train: "/data" validation_fraction: 0.05 tokenizer: "auto" documents: DOCUMENTS_STREAM count_first_token: true shuffle: true }
         training { steps: 10 sequence_length: 16 micro_batch_size: 2 global_batch_size: 8 seed: 1
                    optimizer { name: OPTIMIZER_NAME_ADAMW learning_rate: 3e-4 beta1: 0.9 beta2: 0.95
                                epsilon: 1e-8 weight_decay: 0.1 no_weight_decay: "*norm.weight,*.bias" }
                    schedule { warmup_steps: 0 decay: DECAY_CONSTANT min_learning_rate: 0 }
                    clip_grad_norm: 1 validate_every_steps: 1 validation_batches: 16
                    nonfinite_gradients: NONFINITE_GRADIENTS_SKIP spikes: SPIKES_WARN frozen: "none" recompute: "off" }
         parallelism { ranks: 1 tensor: 1 context: 1 pipeline: 1 expert: 1 expert_tensor: 1 replicas: 1
                       order: "tp-cp-ep-dp-pp" fsdp { strategy: STRATEGY_ZERO3 prefetch: 1 keep_gathered: "none" }
                       schedule: SCHEDULE_SEQUENTIAL }
         precision { compute: COMPUTE_TYPE_FP32 deterministic: true transport: COMPUTE_TYPE_FP32
                     embedding { compute: COMPUTE_TYPE_FP32 transport: COMPUTE_TYPE_FP32 }
                     head { compute: COMPUTE_TYPE_FP32 transport: COMPUTE_TYPE_FP32 } }
         report { parameter_norms: true }
         resources { device: DEVICE_AUTO }
         debug { canaries: false balanced_routing: false })",
      &expected));
  const v1::JobSpec resolved = Resolved(kGoodSpec);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(resolved, expected))
      << resolved.DebugString();
}

TEST(ResolveTest, WsdDecaysInATenthOfTheSteps) {
  const auto schedule = [](const std::string& keys) {
    return Resolved(absl::StrCat("training: {steps: 95, schedule: {", keys, "}}")).training().schedule();
  };
  EXPECT_EQ(schedule("decay: wsd").decay_steps(), 10);
  EXPECT_EQ(schedule("decay: wsd").decay_shape(), v1::DECAY_SHAPE_LINEAR);
  EXPECT_EQ(schedule("decay: wsd, warmup_steps: 90").decay_steps(), 5);
  EXPECT_EQ(schedule("decay: wsd, decay_steps: 30, decay_shape: sqrt").decay_steps(), 30);
  EXPECT_FALSE(schedule("decay: linear").has_decay_steps());
  EXPECT_FALSE(schedule("decay: linear").has_decay_shape());
}

TEST(ResolveTest, AutoPrefetchStaysOpen) {
  const std::string given = "resources: {device: cpu}\nparallelism: {fsdp: {prefetch: auto}}";
  EXPECT_EQ(Resolved(given).parallelism().fsdp().prefetch(), -1);
}

TEST(ResolveTest, OverlapDelaysWeightsOnlyOnRequest) {
  EXPECT_FALSE(Resolved("parallelism: {ranks: 2}").parallelism().has_overlap());
  for (const char* spec :
       {"parallelism: {schedule: overlap}", "parallelism: {schedule: overlap, overlap: {}}"}) {
    const v1::Parallelism resolved = Resolved(spec).parallelism();
    EXPECT_TRUE(resolved.overlap().has_delay_weight_gradients()) << spec;
    EXPECT_FALSE(resolved.overlap().delay_weight_gradients()) << spec;
  }
  EXPECT_TRUE(Resolved("parallelism: {schedule: overlap, overlap: {delay_weight_gradients: true}}")
                  .parallelism()
                  .overlap()
                  .delay_weight_gradients());
}

TEST(ResolveTest, SharedExpertsHaveADefaultExchange) {
  EXPECT_FALSE(Resolved("parallelism: {ranks: 2}").parallelism().has_dispatch());
  ExpectFields(Resolved("parallelism: {ranks: 2, expert: 2}").parallelism().dispatch(),
               "chunks: CHUNKS_AUTO rows_at_a_time: 1.5 most_rows: 0 separate_weight_gradients: false");
}

// What tries changes of a resolved job asks whether they are valid.
TEST(ResolveTest, AResolvedJobWithExpertsIsValid) {
  for (const char* capacity :
       {"", ", capacity_factor: 1.5", ", capacity_factor: 1.5, pad_to_capacity: true"}) {
    const v1::JobSpec spec =
        ReadText(absl::StrCat("model: {preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, "
                              "num_experts_per_tok: 2",
                              capacity,
                              "}}\n"
                              "data: {train: /data}\n"
                              "training: {steps: 10, sequence_length: 64, micro_batch_size: 1, "
                              "global_batch_size: 8}\nparallelism: {ranks: 2, expert: 2}\n"),
                 "job.yaml")
            .spec;
    EXPECT_EQ(ToText(Validate(spec)), "");
    EXPECT_EQ(ToText(Validate(Resolve(spec))), "") << capacity;
  }
}

TEST(ResolveTest, UnitsTakeTheModelsPrecision) {
  ExpectFields(Resolved("precision: {compute: bf16, transport: fp32}").precision(),
               "embedding { compute: COMPUTE_TYPE_BF16 transport: COMPUTE_TYPE_FP32 }");
  ExpectFields(Resolved("precision: {compute: bf16, head: {compute: fp32}}").precision(),
               "transport: COMPUTE_TYPE_BF16 embedding { transport: COMPUTE_TYPE_BF16 } "
               "head { compute: COMPUTE_TYPE_FP32 transport: COMPUTE_TYPE_FP32 }");
}

TEST(ResolveTest, LeavesWhatIsGiven) {
  ExpectFields(Resolved("name: x\nmodel: {preset: llama-3-8b, num_hidden_layers: 2}\n"
                        "training: {steps: 101, clip_grad_norm: 0}\n"
                        "checkpoint: {directory: /c, keep: 7}\nparallelism: {tensor: 4}\n"),
               R"(name: "x"
                  model { num_hidden_layers: 2 hidden_size: 4096 intermediate_size: 14336
                          num_attention_heads: 32 num_key_value_heads: 8 head_dim: 128 vocab_size: 128256
                          rope_theta: 500000 max_position_embeddings: 8192 }
                  # A tenth of the steps, rounded up.
                  training { clip_grad_norm: 0 validate_every_steps: 11 }
                  checkpoint { keep: 7 every_steps: 0 }
                  parallelism { expert_tensor: 4 })");
}

TEST(ResolveTest, OverridingAPresetGivesAModelThatFits) {
  const v1::Model model = Resolved("model: {preset: llama-tiny, num_attention_heads: 8}").model();
  EXPECT_EQ(model.num_key_value_heads(), 8);
  EXPECT_EQ(model.head_dim(), 16);
}

TEST(ResolveTest, ValidationFollowsFromTheData) {
  const v1::JobSpec own = Resolved("data: {train: /t, validation: /v}\ntraining: {steps: 5}");
  EXPECT_FALSE(own.data().has_validation_fraction());
  EXPECT_EQ(own.training().validate_every_steps(), 1);
  const v1::JobSpec none = Resolved("data: {train: /t, validation_fraction: 0}\ntraining: {steps: 5}");
  EXPECT_EQ(none.training().validate_every_steps(), 0);
}

TEST(ResolveTest, TwiceIsOnce) {
  for (const std::string& text :
       {std::string(kGoodSpec), std::string("name: only"), std::string("training: {steps: -5}"),
        std::string("model: {preset: nonsense, num_attention_heads: 0}"),
        std::string("model: {hidden_size: 9223372036854775807, num_attention_heads: -1}"),
        std::string("checkpoint: {directory: /c}\ndata: {validation: /v}\nparallelism: {tensor: 0}")}) {
    const v1::JobSpec once = Resolved(text);
    EXPECT_EQ(Digest(Resolve(once)), Digest(once)) << text;
  }
}

TEST(ResolveTest, ResolvedSpecIsValidToo) {
  ReadResult read = ReadText(kGoodSpec, "");
  EXPECT_EQ(ToText(Validate(read.spec)), "");
  EXPECT_EQ(ToText(Validate(Resolve(read.spec))), "");
  read.spec.mutable_training()->set_steps(0);
  EXPECT_EQ(ToText(Validate(Resolve(read.spec))), ToText(Validate(read.spec)));
}

TEST(DigestTest, IsTheSameForEqualSpecsOnly) {
  const v1::JobSpec spec = Resolved(kGoodSpec);
  v1::JobSpec other = spec;
  EXPECT_EQ(Digest(spec).size(), 64);
  EXPECT_EQ(Digest(spec), Digest(other));
  other.mutable_training()->set_seed(2);
  EXPECT_NE(Digest(spec), Digest(other));
  EXPECT_EQ(Digest(v1::JobSpec()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace tandem::jobspec
