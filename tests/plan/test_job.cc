// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/test_job.h"

#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"

namespace tandem::plan {
namespace {

v1::JobSpec ResolvedOf(const std::string& text) {
  const jobspec::ReadResult read = jobspec::ReadText(text, "test.yaml");
  std::vector<v1::Violation> violations = read.violations;
  if (violations.empty()) {
    violations = jobspec::Validate(read.spec);
  }
  if (!violations.empty()) {
    throw std::invalid_argument(jobspec::ToText(violations));
  }
  return jobspec::Resolve(read.spec);
}

}  // namespace

v1::JobSpec TestJob(const std::string& parallelism, const std::string& precision,
                    const std::string& model_extra, const std::string& model_type) {
  const std::string text =
      "name: small\n"
      "model: {model_type: " +
      model_type +
      ", hidden_size: 64, intermediate_size: 176, num_hidden_layers: 4,"
      " num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256" +
      model_extra +
      "}\n"
      "data: {train: /data, tokenizer: bytes}\n"
      "training: {steps: 200, sequence_length: 64, micro_batch_size: 2, global_batch_size: 12, seed: 7,\n"
      "  optimizer: {name: adamw, learning_rate: 1e-3}, schedule: {warmup_steps: 20, decay: cosine}}\n"
      "parallelism: " +
      parallelism + "\nprecision: " + precision + "\nresources: {device: cpu}\n";
  return ResolvedOf(text);
}

v1::JobSpec SparseJob(const std::string& schedule, const std::string& chunks) {
  return ResolvedOf(absl::StrCat(
      "model: {model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, "
      "vocab_size: 256, num_hidden_layers: 3, moe: {num_experts: 8, num_experts_per_tok: 2}}\n"
      "data: {train: /data}\n"
      "training: {steps: 10, sequence_length: 64, micro_batch_size: 1, global_batch_size: 32}\n"
      "parallelism: {ranks: 4, expert: 4, schedule: ",
      schedule, ", dispatch: {chunks: ", chunks, "}}\nresources: {device: cuda}\n"));
}

schedules::DeviceProfile FastLink() {
  return {.name = "fast",
          .compute = {{"fp32", {.flops_per_second = 1e9, .peak_flops_per_second = 2e9}}},
          .memory_bytes_per_second = 1e15,
          .link = {.bytes_per_second = 1e15}};
}

schedules::DeviceProfile SlowLink() {
  schedules::DeviceProfile profile = FastLink();
  profile.name = "slow";
  profile.link.bytes_per_second = 1e6;
  return profile;
}

}  // namespace tandem::plan
