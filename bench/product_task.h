// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tandem::bench {

// Products of y = x W^T for tandem-tune-products: x [tokens, inputs], W [outputs, inputs].
struct ProductTask {
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  double seconds = 0;     // for each product
  bool residual = false;  // y has an addend
  // y, grad_x, grad_weight, grad_weight_in_float; empty: all of them.
  std::set<std::string, std::less<>> products;

  bool Has(std::string_view product) const { return products.empty() || products.contains(product); }
};

// Reads "TOKENS,OUTPUTS,INPUTS,SECONDS[,residual][,PRODUCT ...]"; nullopt for any other text.
std::optional<ProductTask> ReadProductTask(const std::string& argument);

}  // namespace tandem::bench
