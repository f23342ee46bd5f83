// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "jobspec/jobspec.h"

namespace tandem::jobspec {
namespace {

constexpr char kSeedText[] =
    "api_version: tandem/v1\nname: job\n"
    "model: {preset: llama-tiny, head_dim: 32, num_key_value_heads: 2, rope_theta: 1e4}\n"
    "data:\n  train: /data\n  validation_sets:\n  - path: /v\n  - {path: /w, name: x, format: auto}\n"
    "training: {steps: 10, sequence_length: 16, micro_batch_size: 2, global_batch_size: 8, seed: 3,\n"
    "           optimizer: {learning_rate: 1e-3, beta2: 0.95}, schedule: {warmup_steps: 2, decay: cosine}}\n"
    "parallelism:\n  ranks: 2\n  order: tp-cp-ep-dp-pp\n  fsdp: {strategy: zero3, prefetch: 2}\n"
    "precision: {compute: fp64}\ncheckpoint: {directory: /c, keep: 3, resume: newest}\n";

// What people and programs put where something else belongs.
const char* const kPieces[] = {"-1",    "0",        "99999999999999999999",
                               "1e308", ".nan",     "~",
                               "[",     "]",        "{",
                               "}",     ":",        ": ",
                               ", ",    "\n",       "\n  ",
                               "- ",    "#",        "&a ",
                               "*a",    "!!x ",     "|\n",
                               ">-\n",  "\"",       "'",
                               "<<: ",  "? ",       "---\n",
                               "...\n", "%",        "\\",
                               "\t",    "\xC3\xA9", "\xFF",
                               "\x04",  "yes",      "@"};

std::string Mutated(std::mt19937& random) {
  std::string text = kSeedText;
  const int edits = 1 + static_cast<int>(random() % 6);
  for (int i = 0; i < edits; ++i) {
    const size_t at = random() % (text.size() + 1);
    const size_t length = std::min<size_t>(random() % 12, text.size() - at);
    switch (random() % 5) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        text.replace(at, length, kPieces[random() % std::size(kPieces)]);
        break;
      case 3:
        text.insert(random() % (text.size() + 1), text.substr(at, length * 4));
        break;
      default:
        if (at < text.size()) {
          text[at] = static_cast<char>(random());
        }
    }
  }
  return text;
}

TEST(MutationTest, NoTextCrashesTheChecks) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  int good = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string text = Mutated(random);
    ReadResult read = ReadText(text, "f");
    const std::vector<v1::Violation> violations =
        CheckAll(read, [](const v1::JobSpec&) { return false; }).violations;
    for (const v1::Violation& violation : violations) {
      const std::string line = ToText(violation);
      ASSERT_EQ(line.find_first_of(std::string("\n\0\x1b", 3)), std::string::npos) << text;
      ASSERT_FALSE(line.empty());
    }
    const v1::JobSpec resolved = Resolve(read.spec);
    ASSERT_EQ(Digest(Resolve(resolved)), Digest(resolved)) << text;
    if (violations.empty()) {
      ++good;
      ASSERT_EQ(ToText(Validate(resolved)), "") << text;
    }
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace tandem::jobspec
