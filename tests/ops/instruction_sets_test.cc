// SPDX-License-Identifier: Apache-2.0
// The processor picks one build of the kernels; the others must be right too.
#include "ops/cpu/instruction_sets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention_work.h"
#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {
namespace {

template <typename T>
std::vector<std::pair<std::string, Kernels<T>>> Builds() {
  std::vector<std::pair<std::string, Kernels<T>>> builds(1);
  builds[0].first = "baseline";
  baseline::SetRowKernels(builds[0].second);
  baseline::SetAttentionKernels(builds[0].second);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    auto& [name, kernels] = builds.emplace_back();
    name = "avx2";
    avx2::SetRowKernels(kernels);
    avx2::SetAttentionKernels(kernels);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    auto& [name, kernels] = builds.emplace_back();
    name = "avx512";
    avx512::SetRowKernels(kernels);
    avx512::SetAttentionKernels(kernels);
  }
#endif
  return builds;
}

template <typename T>
class InstructionSetsTest : public testing::Test {
 protected:
  std::vector<T> Numbers(size_t count) {
    std::vector<T> numbers(count);
    std::normal_distribution<double> normal;
    for (T& number : numbers) {
      number = static_cast<T>(normal(engine_));
    }
    return numbers;
  }

  // The largest difference to the baseline over all outputs of `run`, relative to their largest element.
  template <typename Run>
  void ExpectAgreement(const Run& run) {
    const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
    const std::vector<std::pair<std::string, Kernels<T>>> builds = Builds<T>();
    const std::vector<T> expected = run(builds[0].second);
    double scale = 0;
    for (const T number : expected) {
      ASSERT_TRUE(std::isfinite(number));
      scale = std::max(scale, std::abs(static_cast<double>(number)));
    }
    for (const auto& [name, kernels] : builds) {
      const std::vector<T> actual = run(kernels);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * scale) << name << ", element " << i;
      }
    }
  }

  std::mt19937_64 engine_{81};  // the seed
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(InstructionSetsTest, Types);

TYPED_TEST(InstructionSetsTest, AttentionAgrees) {
  using T = TypeParam;
  const AttentionShape shape{2, 75, 4, 2, 20};
  const std::vector<T> qkv = this->Numbers(150 * 160);
  const std::vector<T> grad = this->Numbers(150 * 80);
  std::vector<int64_t> starts(150);
  for (int64_t row = 0; row < 75; ++row) {
    starts[row] = row / 11 * 11;  // not where vectors begin
    starts[75 + row] = row < 50 ? 0 : 50;
  }
  for (const DocumentStarts& documents : {DocumentStarts{}, DocumentStarts{starts.data(), 75}}) {
    AttentionShape form = shape;
    form.documents = documents.starts != nullptr;
    this->ExpectAgreement([&](const Kernels<T>& kernels) {
      std::vector<T> context(150 * 80);
      std::vector<T> lse(2 * 4 * 75);
      std::vector<T> results(150 * 160);
      std::vector<T> memory(AttentionBackwardWorkElements(75, 20, sizeof(T)));
      const Workspace work{memory.data(), static_cast<int64_t>(memory.size() * sizeof(T))};
      kernels.attention({form, qkv.data(), documents, context.data(), lse.data(), work});
      kernels.attention_backward(
          {form, qkv.data(), documents, context.data(), lse.data(), grad.data(), results.data(), work});
      results.insert(results.end(), context.begin(), context.end());
      results.insert(results.end(), lse.begin(), lse.end());
      return results;
    });
  }
}

TYPED_TEST(InstructionSetsTest, RowKernelsAgree) {
  using T = TypeParam;
  const int64_t rows = 5;
  for (const int64_t columns : {1, 6, 16, 37, 128}) {
    const std::vector<T> x = this->Numbers(rows * columns);
    const std::vector<T> grad = this->Numbers(rows * columns);
    const std::vector<T> weight = this->Numbers(columns);
    const std::vector<T> wide = this->Numbers(rows * 2 * columns);
    this->ExpectAgreement([&](const Kernels<T>& kernels) {
      std::vector<T> y(rows * columns);
      kernels.rms_norm({x.data(), weight.data(), 1e-5, rows, columns, y.data()});
      kernels.add(grad.data(), rows * columns, y.data());
      return y;
    });
    this->ExpectAgreement([&](const Kernels<T>& kernels) {
      std::vector<T> results = x;
      results.resize(rows * columns + columns);
      kernels.rms_norm_backward({grad.data(), x.data(), weight.data(), 1e-5, rows, columns, grad.data(), true,
                                 results.data(), false, results.data() + rows * columns, Workspace()});
      return results;
    });
    this->ExpectAgreement([&](const Kernels<T>& kernels) {
      std::vector<T> results(rows * 4 * columns + rows);
      kernels.swiglu({wide.data(), x.data(), nullptr, rows, columns, results.data()});
      kernels.swiglu_backward({wide.data(), x.data(), nullptr, grad.data(), rows, columns,
                               results.data() + rows * columns, results.data() + rows * 3 * columns,
                               results.data() + rows * 4 * columns});
      return results;
    });
    this->ExpectAgreement([&](const Kernels<T>& kernels) {
      std::vector<T> results(rows * columns + rows);
      kernels.log_sum_exp(x.data(), rows, columns, results.data() + rows * columns);
      kernels.softmax(x.data(), results.data() + rows * columns, 0.25, rows, columns, results.data());
      return results;
    });
  }
}

TYPED_TEST(InstructionSetsTest, RopeAgrees) {
  using T = TypeParam;
  const std::vector<T> x = this->Numbers(10 * 3 * 44);
  const std::vector<T> tables = this->Numbers(2 * 5 * 22);
  this->ExpectAgreement([&](const Kernels<T>& kernels) {
    std::vector<T> results = x;
    kernels.rope({tables.data(), tables.data() + 5 * 22, T{-1}, 10, 5, 2, 44, 3 * 44, results.data()});
    return results;
  });
}

}  // namespace
}  // namespace tandem::ops::cpu
