// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace tandem::ops {
namespace {

// The bits of a result do not depend on where the operands lie: two schedules give a node other addresses.
// Compilers version loops by the distances of their pointers, and contract multiply and add in one version
// and not in the other.

constexpr int64_t kApart = 4096;  // elements between operands that are far from each other

using Floats = std::vector<float>;
using Kernel = std::function<void(const std::vector<float*>& operands)>;

// What is in the operands after the kernel, one behind the other. offsets: where each begins.
Floats Run(const std::vector<Floats>& operands, const std::vector<int64_t>& offsets, const Kernel& kernel) {
  Floats memory(kApart * (operands.size() + 1));
  std::vector<float*> begins;
  for (size_t i = 0; i < operands.size(); ++i) {
    begins.push_back(memory.data() + offsets[i]);
    std::copy(operands[i].begin(), operands[i].end(), begins.back());
  }
  kernel(begins);
  Floats after;
  for (size_t i = 0; i < operands.size(); ++i) {
    after.insert(after.end(), begins[i], begins[i] + operands[i].size());
  }
  return after;
}

void ExpectSameBitsAnywhere(const std::vector<int64_t>& sizes, const Kernel& kernel) {
  constexpr uint64_t kSeed = 20261122;
  constexpr int kTrials = 200;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<Floats> operands;
    std::vector<int64_t> apart;
    for (const int64_t size : sizes) {
      apart.push_back(kApart * static_cast<int64_t>(operands.size()));
      operands.emplace_back(size);
      std::generate(operands.back().begin(), operands.back().end(), [&] { return normal(random); });
    }
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int64_t> adjacent(sizes.size());
    int64_t end = static_cast<int64_t>(random() % 16);
    for (const size_t i : order) {
      adjacent[i] = end;
      end += sizes[i] + static_cast<int64_t>(random() % 3);
    }
    ASSERT_EQ(Run(operands, apart, kernel), Run(operands, adjacent, kernel))
        << "trial " << trial << " of seed " << kSeed;
  }
}

class AlignmentTest : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Columns, AlignmentTest, testing::Values(2, 6, 8, 12, 16, 24, 40));

TEST_P(AlignmentTest, RmsNormBackwardGivesTheSameBitsAnywhere) {
  constexpr int64_t kRows = 8;
  const int64_t columns = GetParam();
  const int64_t matrix = kRows * columns;
  for (const bool add : {false, true}) {
    ExpectSameBitsAnywhere(
        {matrix, matrix, columns, matrix, matrix, columns}, [&](const std::vector<float*>& in) {
          cpu::RunKernel(RmsNormBackwardArgs<float>{
              in[0], in[1], in[2], {1e-5}, kRows, columns, in[3], add, in[4], add, in[5], Workspace()});
        });
  }
}

TEST_P(AlignmentTest, RmsNormGivesTheSameBitsAnywhere) {
  constexpr int64_t kRows = 8;
  const int64_t columns = GetParam();
  ExpectSameBitsAnywhere({kRows * columns, columns, kRows * columns}, [&](const std::vector<float*>& in) {
    cpu::RunKernel(RmsNormArgs<float>{in[0], in[1], {1e-5}, kRows, columns, in[2]});
  });
}

TEST_P(AlignmentTest, RopeGivesTheSameBitsAnywhere) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kHeads = 3;
  const int64_t dim = GetParam();
  ExpectSameBitsAnywhere(
      {kRows * dim / 2, kRows * dim / 2, kRows * kHeads * dim}, [&](const std::vector<float*>& in) {
        cpu::RunKernel(
            RopeArgs<float>{in[0], in[1], 1.0F, kRows, kRows, kHeads, dim, dim / 2, kHeads * dim, in[2]});
      });
}

TEST_P(AlignmentTest, SwiGluAndBackwardKeepBitsAnywhere) {
  constexpr int64_t kRows = 6;
  const int64_t inner = GetParam();
  const int64_t matrix = kRows * inner;
  ExpectSameBitsAnywhere({2 * matrix, kRows, matrix}, [&](const std::vector<float*>& in) {
    cpu::RunKernel(SwiGluArgs<float>{in[0], in[1], nullptr, kRows, inner, in[2]});
  });
  ExpectSameBitsAnywhere(
      {2 * matrix, kRows, matrix, 2 * matrix, matrix, kRows}, [&](const std::vector<float*>& in) {
        cpu::RunKernel(
            SwiGluBackwardArgs<float>{in[0], in[1], nullptr, in[2], kRows, inner, in[3], in[4], in[5]});
      });
}

TEST_P(AlignmentTest, LogSumExpAndSoftmaxKeepBitsAnywhere) {
  constexpr int64_t kRows = 6;
  const int64_t columns = GetParam();
  ExpectSameBitsAnywhere({kRows * columns, kRows, kRows * columns}, [&](const std::vector<float*>& in) {
    cpu::RunKernel(cpu::LogSumExpArgs<float>{in[0], kRows, columns, in[1]});
    cpu::RunKernel(cpu::SoftmaxArgs<float>{in[0], in[1], 0.25, kRows, columns, in[2]});
  });
}

}  // namespace
}  // namespace tandem::ops
