// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tandem::bench {

// One argument of tandem-tune-products: y = x W^T with x [tokens, inputs] and W [outputs, inputs], and its
// gradients.
struct ProductTask {
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  double seconds = 0;     // that may be spent on each product
  bool residual = false;  // y has an addend
  // Which of y, grad_x, grad_weight and grad_weight_in_float to tune; all if empty.
  std::set<std::string, std::less<>> products;

  bool Has(std::string_view product) const { return products.empty() || products.contains(product); }
};

// Reads "TOKENS,OUTPUTS,INPUTS,SECONDS[,residual][,PRODUCT ...]"; nullopt for any other text.
std::optional<ProductTask> ReadProductTask(const std::string& argument);

}  // namespace tandem::bench
