// SPDX-License-Identifier: Apache-2.0
#include "bench/product_task.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"

namespace tandem::bench {
namespace {

constexpr std::array<std::string_view, 4> kProducts = {"y", "grad_x", "grad_weight", "grad_weight_in_float"};

}  // namespace

std::optional<ProductTask> ReadProductTask(const std::string& argument) {
  std::vector<std::string> parts;
  std::istringstream text(argument);
  for (std::string part; std::getline(text, part, ',');) {
    parts.push_back(part);
  }
  ProductTask task;
  if (parts.size() < 4 || !absl::SimpleAtoi(parts[0], &task.tokens) ||
      !absl::SimpleAtoi(parts[1], &task.outputs) || !absl::SimpleAtoi(parts[2], &task.inputs) ||
      !absl::SimpleAtod(parts[3], &task.seconds)) {
    return std::nullopt;
  }
  for (size_t i = 4; i < parts.size(); ++i) {
    if (i == 4 && parts[i] == "residual") {
      task.residual = true;
    } else if (std::find(kProducts.begin(), kProducts.end(), parts[i]) != kProducts.end()) {
      task.products.insert(parts[i]);
    } else {
      return std::nullopt;
    }
  }
  return task;
}

}  // namespace tandem::bench
