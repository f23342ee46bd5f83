// SPDX-License-Identifier: Apache-2.0
// The processor picks one build of the kernels; the others must be right too.
#include "ops/cpu/instruction_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_work.h"
#include "ops/cpu/best_instruction_set.h"
#include "ops/cpu/kernels.h"
#include "ops/moves.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace tandem::ops::cpu {
namespace {

// A build of the kernels.
struct Build {
  template <typename Args>
  void Run(const Args& args) const {
    KernelOf<Args>(set)(args);
  }
  InstructionSet set;
};

// Those that this processor runs, the baseline first.
std::vector<Build> Builds() {
  std::vector<Build> builds;
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set <= BestInstructionSet()) {
      builds.push_back({set});
    }
  }
  return builds;
}

// E: the elements in memory.
template <typename E>
class InstructionSetsTest : public testing::Test {
 protected:
  using T = Arithmetic<E>;

  InstructionSetsTest() { std::cout << "builds up to " << ToText(BestInstructionSet()) << "\n"; }

  static constexpr bool kRounds = sizeof(E) < sizeof(T);

  // Of elements, or of what is computed in.
  template <typename N>
  std::vector<N> NumbersOf(size_t count) {
    std::vector<N> numbers(count);
    std::normal_distribution<double> normal;
    for (N& number : numbers) {
      const auto drawn = static_cast<T>(normal(engine_));
      if constexpr (std::is_same_v<N, T>) {
        number = drawn;
      } else {
        number.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(drawn) >> 16);
      }
    }
    return numbers;
  }
  std::vector<E> Numbers(size_t count) { return NumbersOf<E>(count); }
  std::vector<T> Statistics(size_t count) { return NumbersOf<T>(count); }

  // All of them, as numbers.
  template <typename... Lists>
  static std::vector<double> Joined(const Lists&... lists) {
    std::vector<double> all;
    const auto append = [&](const auto& list) {
      for (const auto number : list) {
        if constexpr (std::is_same_v<decltype(number), const Bf16>) {
          all.push_back(std::bit_cast<float>(static_cast<uint32_t>(number.bits) << 16));
        } else {
          all.push_back(number);
        }
      }
    };
    (append(lists), ...);
    return all;
  }

  // The largest difference to the baseline over all outputs of `run`, relative to their largest element: of
  // bfloat16 a result may be rounded to the next number.
  template <typename Run>
  void ExpectAgreement(const Run& run) {
    const double tolerance = kRounds ? 0x1p-7 : sizeof(T) == 4 ? 1e-5 : 1e-13;
    const std::vector<Build> builds = Builds();
    const std::vector<double> expected = run(builds[0]);
    double scale = 0;
    for (const double number : expected) {
      ASSERT_TRUE(std::isfinite(number));
      scale = std::max(scale, std::abs(number));
    }
    for (const Build& build : builds) {
      const std::vector<double> actual = run(build);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * scale)
            << ToText(build.set) << ", element " << i;
      }
    }
  }

  std::mt19937_64 engine_{81};  // the seed
};
using Types = testing::Types<float, double, Bf16>;
TYPED_TEST_SUITE(InstructionSetsTest, Types);

TYPED_TEST(InstructionSetsTest, AttentionAgrees) {
  using E = TypeParam;
  using T = Arithmetic<E>;
  for (const int64_t length : {75, 300}) {  // one block of keys, and more
    const AttentionShape shape{2, length, 4, 2, 20};
    const std::vector<E> qkv = this->Numbers(shape.tokens() * 160);
    const std::vector<E> grad = this->Numbers(shape.tokens() * 80);
    std::vector<int64_t> starts(shape.tokens());
    for (int64_t row = 0; row < length; ++row) {
      starts[row] = row / 11 * 11;  // not where vectors begin
      starts[length + row] = row < length - 25 ? 0 : length - 25;
    }
    for (const DocumentStarts& documents : {DocumentStarts{}, DocumentStarts{starts.data(), length}}) {
      AttentionShape form = shape;
      form.documents = documents.starts != nullptr;
      this->ExpectAgreement([&](const Build& build) {
        std::vector<E> context(grad.size());
        std::vector<T> lse(shape.tokens() * 4);
        std::vector<E> grad_qkv(qkv.size());
        std::vector<T> memory(AttentionWorkElements(length, 20, sizeof(T)));
        std::vector<T> more(AttentionBackwardWorkElements(length, 20, sizeof(T)));
        build.Run(
            AttentionArgs<E>{form, qkv.data(), documents, context.data(), lse.data(),
                             Workspace{memory.data(), static_cast<int64_t>(memory.size() * sizeof(T))}});
        build.Run(AttentionBackwardArgs<E>{
            form, qkv.data(), documents, context.data(), lse.data(), grad.data(), grad_qkv.data(),
            Workspace{more.data(), static_cast<int64_t>(more.size() * sizeof(T))}});
        return this->Joined(grad_qkv, context, lse);
      });
    }
  }
}

TYPED_TEST(InstructionSetsTest, RowKernelsAgree) {
  using E = TypeParam;
  using T = Arithmetic<E>;
  const int64_t rows = 5;
  for (const int64_t columns : {1, 6, 16, 37, 128}) {
    const std::vector<E> x = this->Numbers(rows * columns);
    const std::vector<E> grad = this->Numbers(rows * columns);
    const std::vector<E> weight = this->Numbers(columns);
    const std::vector<E> wide = this->Numbers(rows * 2 * columns);
    const std::vector<T> factors = this->Statistics(rows);
    const std::vector<T> sums = this->Statistics(rows * columns);
    this->ExpectAgreement([&](const Build& build) {
      std::vector<E> y(rows * columns);
      build.Run(RmsNormArgs<E>{x.data(), weight.data(), {1e-5}, rows, columns, y.data()});
      build.Run(AddArgs<E>{grad.data(), rows * columns, y.data()});
      return this->Joined(y);
    });
    this->ExpectAgreement([&](const Build& build) {
      std::vector<E> grad_x = x;
      std::vector<T> grad_weight(columns);
      build.Run(RmsNormBackwardArgs<E>{grad.data(),
                                       x.data(),
                                       weight.data(),
                                       {1e-5},
                                       rows,
                                       columns,
                                       grad.data(),
                                       true,
                                       grad_x.data(),
                                       false,
                                       grad_weight.data(),
                                       Workspace()});
      return this->Joined(grad_x, grad_weight);
    });
    this->ExpectAgreement([&](const Build& build) {
      std::vector<E> activated(rows * columns);
      std::vector<E> grad_gate_up(rows * 2 * columns);
      std::vector<E> again(rows * columns);
      std::vector<T> grad_factors(rows);
      build.Run(SwiGluArgs<E>{wide.data(), factors.data(), nullptr, rows, columns, activated.data()});
      build.Run(SwiGluBackwardArgs<E>{wide.data(), factors.data(), nullptr, grad.data(), rows, columns,
                                      grad_gate_up.data(), again.data(), grad_factors.data()});
      return this->Joined(activated, grad_gate_up, again, grad_factors);
    });
    this->ExpectAgreement([&](const Build& build) {
      std::vector<E> probabilities(rows * columns);
      std::vector<T> lse(rows);
      build.Run(LogSumExpArgs<E>{x.data(), rows, columns, lse.data()});
      build.Run(SoftmaxArgs<E>{x.data(), lse.data(), 0.25, rows, columns, probabilities.data()});
      return this->Joined(probabilities, lse);
    });
    this->ExpectAgreement([&](const Build& build) {
      std::vector<T> accumulated = sums;
      build.Run(AccumulateArgs<E>{x.data(), rows * columns, accumulated.data()});
      std::vector<T> wider(rows * columns);
      build.Run(WidenArgs<E>{x.data(), rows * columns, wider.data()});
      std::vector<E> narrower(rows * columns);
      build.Run(NarrowArgs<E>{sums.data(), rows * columns, narrower.data()});
      return this->Joined(accumulated, wider, narrower);
    });
  }
}

TYPED_TEST(InstructionSetsTest, RopeAgrees) {
  using E = TypeParam;
  using T = Arithmetic<E>;
  const std::vector<E> x = this->Numbers(10 * 3 * 44);
  const std::vector<T> tables = this->Statistics(2 * 5 * 22);
  this->ExpectAgreement([&](const Build& build) {
    std::vector<E> turned = x;
    build.Run(
        RopeArgs<E>{tables.data(), tables.data() + 5 * 22, T{-1}, 10, 5, 2, 44, 22, 3 * 44, turned.data()});
    return this->Joined(turned);
  });
}

// What is no number shows, and what is in the middle goes to the even one, on every build.
TYPED_TEST(InstructionSetsTest, NarrowingAgreesToTheBitOnSpecialValues) {
  using E = TypeParam;
  using T = Arithmetic<E>;
  std::vector<T> special = {0,
                            -T{0},
                            1,
                            static_cast<T>(1 + 0x1p-8),      // between two of bfloat16: down to the even one
                            static_cast<T>(1 + 3 * 0x1p-8),  // up to the even one
                            static_cast<T>(0x1.FEp127),      // the largest that does not become infinite
                            static_cast<T>(0x1.FFFFFEp127),
                            static_cast<T>(0x1p-133),  // subnormal
                            std::numeric_limits<T>::infinity(),
                            -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::quiet_NaN()};
  const auto bits = [&](const Build& build, size_t repeats) {
    std::vector<T> numbers;
    for (size_t i = 0; i < repeats; ++i) {
      numbers.insert(numbers.end(), special.begin(), special.end());
    }
    std::vector<E> narrower(numbers.size());
    build.Run(NarrowArgs<E>{numbers.data(), static_cast<int64_t>(numbers.size()), narrower.data()});
    std::vector<unsigned char> bytes(narrower.size() * sizeof(E));
    std::memcpy(bytes.data(), narrower.data(), bytes.size());
    return bytes;
  };
  const std::vector<Build> builds = Builds();
  for (const size_t repeats : {1, 16}) {  // an end of a row, and whole vectors
    for (const Build& build : builds) {
      EXPECT_EQ(bits(build, repeats), bits(builds[0], repeats)) << ToText(build.set);
    }
  }
  if constexpr (std::is_same_v<E, Bf16>) {
    std::vector<E> narrower(special.size());
    builds[0].Run(NarrowArgs<E>{special.data(), static_cast<int64_t>(special.size()), narrower.data()});
    std::vector<uint16_t> found;
    for (const Bf16 number : narrower) {
      found.push_back(number.bits);
    }
    EXPECT_EQ(found, (std::vector<uint16_t>{0, 0x8000, 0x3F80, 0x3F80, 0x3F82, 0x7F7F, 0x7F80, 0x0001, 0x7F80,
                                            0xFF80, 0x7FC0}));
  }
}

}  // namespace
}  // namespace tandem::ops::cpu
