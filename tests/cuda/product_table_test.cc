// SPDX-License-Identifier: Apache-2.0
// Every algorithm that the build's table has for this machine's GPU, at its own product.
#include "ops/product_table.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "ops/cuda/product_plan.h"
#include "ops/linear_work.h"
#include "tests/ops/compare.h"

namespace tandem::ops {
namespace {

using cuda::ProductMachine;
using cuda::ProductOperands;
using cuda::ProductPlan;

constexpr int kRepeats = 50;
// Of the norm. Sums in float of n = 128,256 products differ by 0.41 sqrt(2 n) u, 1.2e-5, where two orders
// round (tests/ops/compare.h); tensor cores cut off instead, so that errors do not cancel: eight times that
// has sufficed for every line, and no more is known of what they do.
// And the rounding to bfloat16, of either.
constexpr double kFloatTolerance = 1e-4;
constexpr double kBf16Tolerance = 1.0 / 256 + kFloatTolerance;

at::TensorOptions OnGpu(at::ScalarType type) { return at::TensorOptions(at::kCUDA).dtype(type); }

// The matrices that a line's third field says.
class Product {
 public:
  explicit Product(const std::string& text) {
    static const std::regex form(
        R"((bf16|fp32) (transposed )?(\d+)x(\d+) \* (bf16|fp32) (transposed )?(\d+)x(\d+)( \+ addend)? = (bf16|fp32) (\d+)x(\d+))");
    std::smatch part;
    if (!std::regex_match(text, part, form)) {
      ADD_FAILURE() << text << " is not a product";
    }
    const auto matrix = [&](size_t type, size_t transposed, size_t rows) {
      const int64_t lines = std::stoll(part[rows]);
      const int64_t columns = std::stoll(part[rows + 1]);
      return transposed > 0 && part[transposed].matched ? Random(part[type], columns, lines).t()
                                                        : Random(part[type], lines, columns);
    };
    left = matrix(1, 2, 3);
    right = matrix(5, 6, 7);
    output = matrix(10, 0, 11);
    if (part[9].matched) {
      addend = matrix(10, 0, 11);
    }
  }

  ProductOperands operands() { return ProductOperands({left, right, addend, output, {}}); }

  at::Tensor left;
  at::Tensor right;
  at::Tensor addend;
  at::Tensor output;

 private:
  static at::Tensor Random(const std::string& type, int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, OnGpu(type == "bf16" ? at::kBFloat16 : at::kFloat));
  }
};

class CudaProductTableTest : public testing::Test {
 protected:
  CudaProductTableTest() { cuda::CheckProduct(cublasLtCreate(&handle_), "no handle"); }
  ~CudaProductTableTest() override { cublasLtDestroy(handle_); }

  // What is computed by that algorithm, or by the rules' first. Every element is written.
  at::Tensor Compute(Product& product, const ProductTable::Algorithm* algorithm) {
    product.output.fill_(std::numeric_limits<double>::quiet_NaN());
    const ProductOperands operands = product.operands();
    const ProductPlan plan(handle_, operands, algorithm);
    plan.Run(handle_, operands, work_, c10::cuda::getCurrentCUDAStream().stream());
    return product.output.clone();
  }

  // Bytes, on the GPU.
  static bool SameBits(const at::Tensor& a, const at::Tensor& b) {
    const at::ScalarType integers = a.element_size() == 2 ? at::kShort : at::kInt;
    return a.view(integers).equal(b.view(integers));
  }

  const c10::InferenceMode no_graph_;
  cublasLtHandle_t handle_ = nullptr;
  const test::WorkMemory work_{kGpuLinearWorkBytes, at::kCUDA};
};

TEST_F(CudaProductTableTest, AlgorithmsRepeatBitsAndMatchTheRules) {
  const auto& products = ProductTable::OfBuild().Of(ProductMachine());
  if (products.empty()) {
    GTEST_SKIP() << "the table has nothing for " << ProductMachine();
  }
  for (const auto& [text, algorithm] : products) {
    SCOPED_TRACE(text);
    Product product(text);
    ASSERT_EQ(product.operands().text(), text);
    const ProductPlan plan(handle_, product.operands(), nullptr);
    EXPECT_TRUE(plan.Takes(handle_, algorithm)) << "this cuBLASLt refuses it";
    const at::Tensor first = Compute(product, &algorithm);
    for (int repeat = 1; repeat < kRepeats; ++repeat) {
      ASSERT_TRUE(SameBits(Compute(product, &algorithm), first)) << "run " << repeat;
    }
    const at::Tensor expected = Compute(product, nullptr);
    const double size = expected.norm(2, at::kDouble).item<double>();
    EXPECT_LE(first.sub(expected).norm(2, at::kDouble).item<double>(),
              (expected.scalar_type() == at::kFloat ? kFloatTolerance : kBf16Tolerance) * size);
    EXPECT_GT(size, 0);
  }
}

// Products of a layer and of the head, of few tokens and of many: where matrices are small and sums are long,
// the rules split them.
TEST_F(CudaProductTableTest, TheRulesAddNoSplitSumsInBfloat16) {
  struct Matrix {
    int64_t outputs;
    int64_t inputs;
  };
  int splitting = 0;
  for (const auto& [outputs, inputs] : std::vector<Matrix>{{128, 128},
                                                           {704, 128},
                                                           {6144, 4096},
                                                           {4096, 4096},
                                                           {28672, 4096},
                                                           {4096, 14336},
                                                           {128256, 4096},
                                                           {4608, 3584},
                                                           {37888, 3584},
                                                           {3584, 18944}}) {
    for (const int64_t tokens : {8, 1024, 16384}) {
      SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " -> " << outputs);
      const auto matrix = [](int64_t rows, int64_t columns) {
        return at::empty({rows, columns}, OnGpu(at::kBFloat16));
      };
      at::Tensor x = matrix(tokens, inputs);
      at::Tensor y = matrix(tokens, outputs);
      at::Tensor weight = matrix(outputs, inputs);
      for (const ProductOperands& product :
           {ProductOperands({x, weight.t(), {}, y, {}}), ProductOperands({x, weight.t(), y, y, {}}),
            ProductOperands({y, weight, {}, x, {}}), ProductOperands({y.t(), x, {}, weight, {}}),
            ProductOperands({y.t(), x, weight, weight, {}})}) {
        const ProductPlan plan(handle_, product, nullptr);
        for (const ProductTable::Algorithm& algorithm : plan.Proposed(handle_, product, /*max_count=*/64)) {
          if (algorithm.splits <= 1) {
            continue;
          }
          ++splitting;
          EXPECT_NE(algorithm.reduction, uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE}) << product.text();
          EXPECT_NE(algorithm.reduction, uint32_t{CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}) << product.text();
        }
      }
    }
  }
  EXPECT_GT(splitting, 0) << "no sum was split: this has seen nothing";
}

TEST_F(CudaProductTableTest, RulesComputeWhereCublasltRefusesTheAlgorithm) {
  Product product("bf16 256x512 * bf16 transposed 512x128 = bf16 256x128");
  const at::Tensor expected = Compute(product, nullptr);
  for (const ProductTable::Algorithm& refused :
       std::array<ProductTable::Algorithm, 2>{{{.id = 9999}, {.id = 66, .tile = 9999, .splits = 1}}}) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(SameBits(Compute(product, &refused), expected));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::AllOf(testing::HasSubstr("[256, 512] times [512, 128]"),
                               testing::HasSubstr("the first of its own rules computes it")));
  }
}

}  // namespace
}  // namespace tandem::ops
