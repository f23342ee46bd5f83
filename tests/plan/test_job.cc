// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/test_job.h"

#include <stdexcept>

#include "jobspec/jobspec.h"

namespace tandem::plan {

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

}  // namespace tandem::plan
