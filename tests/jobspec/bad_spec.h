// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "jobspec/jobspec.h"

namespace tandem::jobspec {

// The smallest job; the line numbers of the messages are of this text.
inline constexpr char kGoodSpec[] =
    "model: {preset: llama-tiny}\n"
    "data: {train: /data}\n"
    "training: {steps: 10, sequence_length: 16, micro_batch_size: 2, global_batch_size: 8}\n";

// A bad text and every line that is said about it.
struct BadSpec {
  std::string name;
  std::string
      from;  // the part of kGoodSpec that `to` replaces; "": `to` is appended; "*": it is the whole text
  std::string to;
  std::string
      messages;  // {root}, {training}, {model}: the keys of that block; {name}, {path}: what these allow
};

inline std::string TextOf(const BadSpec& bad) {
  if (bad.from == "*") {
    return bad.to;
  }
  std::string text = kGoodSpec;
  if (bad.from.empty()) {
    return text + bad.to + "\n";
  }
  const size_t at = text.find(bad.from);
  EXPECT_NE(at, std::string::npos) << bad.name;
  return at == std::string::npos ? text : text.replace(at, bad.from.size(), bad.to);
}

inline std::string MessagesOf(const BadSpec& bad) {
  return absl::StrReplaceAll(
      bad.messages,
      {{"{root}",
        "api_version, name, model, data, training, parallelism, precision, checkpoint, report, resources, "
        "recovery, debug, graphs, priority"},
       {"{training}",
        "steps, sequence_length, micro_batch_size, global_batch_size, seed, optimizer, schedule, "
        "clip_grad_norm, "
        "validate_every_steps, validation_batches, nonfinite_gradients, frozen, recompute, spikes, "
        "mtp_loss_weight, mtp_detach"},
       {"{model}",
        "preset, hugging_face, model_type, hidden_size, intermediate_size, num_hidden_layers, "
        "num_attention_heads, num_key_value_heads, head_dim, vocab_size, rms_norm_eps, rope_theta, "
        "tie_word_embeddings, initializer_range, max_position_embeddings, moe, latent_attention, "
        "rope_scaling, attention_bias, qk_norm, norms, sliding_window, window_layers, "
        "hybrid_pattern, mamba, gated_delta_net, partial_rotary_factor, rotary_embedding, "
        "embedding_multiplier, "
        "attention_multiplier, residual_multiplier, logits_scaling, attention_gate, norms_add_one, "
        "num_nextn_predict_layers"},
       {"{name}", "1 to 63 of a-z, 0-9 and -, neither first nor last a -"},
       {"{path}", "absolute path of a file, a folder or a glob"}});
}

inline void ExpectMessages(absl::Span<const BadSpec> specs) {
  for (const BadSpec& bad : specs) {
    ReadResult read = ReadText(TextOf(bad), "job.yaml");
    EXPECT_EQ(ToText(CheckAll(read, [](const v1::JobSpec&) { return false; }).violations), MessagesOf(bad))
        << bad.name;
  }
}

// Expects the fields of `text`, a message in protobuf's text format; `message` may have others.
inline void ExpectFields(const google::protobuf::Message& message, const std::string& text) {
  using google::protobuf::util::MessageDifferencer;
  const std::unique_ptr<google::protobuf::Message> expected(message.New());
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, expected.get())) << text;
  MessageDifferencer differencer;
  differencer.set_scope(MessageDifferencer::PARTIAL);
  EXPECT_TRUE(differencer.Compare(*expected, message)) << text << "\n" << message.ShortDebugString();
}

}  // namespace tandem::jobspec
