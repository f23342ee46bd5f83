// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/resume_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "trainer/failure.h"

namespace tandem::parity {

JobOptions OnRanks(int ranks, const std::string& folder) {
  return {.ranks = ranks,
          .microbatches_per_rank = kMicrobatches / ranks,
          .steps = 8,
          .checkpoint_directory = folder};
}

RunOptions Ask(int rank, uint32_t bits, uint64_t id) {
  return {.with_requests = [=](std::vector<trainer::RequestBox>& requests) { requests[rank].Add(bits, id); }};
}

std::string WriteOtherText(const std::string& folder) {
  const std::string file = folder + "/other";
  std::ofstream out(file, std::ios::binary);
  for (int line = 0; line < 200; ++line) {
    out << "The quick brown fox " << line << " jumps over the lazy dog.\n";
  }
  return file;
}

void Damage(const std::string& checkpoint) {
  std::ofstream(checkpoint + "/rank-00000.safetensors", std::ios::app) << "x";
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t NumLines(const std::string& path) {
  std::ifstream file(path);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) {
    ++lines;
  }
  return lines;
}

Refusal RefusalOf(const plan::JobPlan& plan, const RunOptions& run) {
  try {
    RunJob(plan, run);
    ADD_FAILURE() << "it was not refused";
    return {};
  } catch (const trainer::UserError& error) {
    return {.reason = error.reason, .message = error.what()};
  }
}

}  // namespace tandem::parity
