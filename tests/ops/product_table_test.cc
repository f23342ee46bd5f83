// SPDX-License-Identifier: Apache-2.0
#include "ops/product_table.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace tandem::ops {
namespace {

constexpr char kMachine[] = "NVIDIA H200|130100";
constexpr ProductTable::Algorithm kOne = {1, 2, 3, 4, 5, 6, 7, 8, 0xFFFFFFFF};
constexpr ProductTable::Algorithm kOther = {9, 8, 7, 6, 5, 4, 3, 2, 1};

TEST(ProductTableTest, FindsWhatItsLinesSay) {
  const ProductTable table("# a comment\n\n" + ProductTable::Line(kMachine, "a product", kOne) + "\n" +
                           ProductTable::Line("NVIDIA H100|130100", "a product", kOther));
  ASSERT_NE(table.Find(kMachine, "a product"), nullptr);
  EXPECT_EQ(*table.Find(kMachine, "a product"), kOne);
  EXPECT_EQ(*table.Find("NVIDIA H100|130100", "a product"), kOther);
  EXPECT_EQ(table.Find(kMachine, "another"), nullptr);
  EXPECT_EQ(table.Find("NVIDIA H200|130200", "a product"), nullptr) << "algorithms are of one version";
  EXPECT_EQ(table.Of(kMachine).size(), 1u);
  EXPECT_TRUE(table.Of("NVIDIA H200|130200").empty());
}

// Reductions 1 and 4 of cublasLtReductionScheme_t, in place and in the output's type, round every part of a
// sum.
TEST(ProductTableTest, NoAlgorithmAddsSplitSumsInBfloat16) {
  const auto& products = ProductTable::OfBuild().Of(kMachine);
  EXPECT_FALSE(products.empty());
  for (const auto& [product, algorithm] : products) {
    if (product.find(" = bf16 ") != std::string::npos && algorithm.splits > 1) {
      EXPECT_NE(algorithm.reduction, 1u) << product;
      EXPECT_NE(algorithm.reduction, 4u) << product;
    }
  }
}

TEST(ProductTableTest, TheDigestCoversMachineAndLines) {
  const std::string line = ProductTable::Line(kMachine, "a product", kOne);
  const std::string digest = ProductTable(line).DigestOf(kMachine);
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(digest, ProductTable("# other words\n" + line).DigestOf(kMachine));
  EXPECT_EQ(digest, ProductTable(line + "\n" + ProductTable::Line("NVIDIA H100|130100", "a product", kOther))
                        .DigestOf(kMachine));
  EXPECT_NE(digest, ProductTable(ProductTable::Line(kMachine, "a product", kOther)).DigestOf(kMachine));
  EXPECT_NE(digest, ProductTable("").DigestOf(kMachine));
  EXPECT_NE(ProductTable("").DigestOf("NVIDIA H100|130100"), ProductTable("").DigestOf(kMachine));
}

TEST(ProductTableTest, ABadLineIsNamedByItsNumber) {
  const std::string good = ProductTable::Line(kMachine, "a product", kOne);
  const auto error = [](const std::string& text) -> std::string {
    try {
      ProductTable table(text);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("# fine\nNVIDIA H200|130100|0").find("line 2: it has no four fields"), std::string::npos);
  EXPECT_NE(error(good + " 1").find("line 1: an algorithm has nine numbers"), std::string::npos);
  EXPECT_NE(error(good + "g").find("4294967295g is not a number"), std::string::npos);
  EXPECT_NE(error(good + "\n" + good).find("line 2: that product is given twice"), std::string::npos);
}

}  // namespace
}  // namespace tandem::ops
