// SPDX-License-Identifier: Apache-2.0
#include "ops/product_table.h"

#include <array>
#include <stdexcept>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ops/product_table_text.h"
#include "platform/sha256.h"

namespace tandem::ops {
namespace {

std::array<uint32_t*, 9> SettingsOf(ProductTable::Algorithm& a) {
  return {&a.id, &a.tile, &a.stages, &a.splits, &a.reduction, &a.swizzle, &a.custom, &a.inner, &a.cluster};
}

}  // namespace

ProductTable::ProductTable(const std::string& text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const auto wrong = [&](absl::string_view what) {
      return std::invalid_argument(absl::StrCat("table of matrix products, line ", number, ": ", what,
                                                "; a line is GPU|version|product|algorithm"));
    };
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '|');
    if (fields.size() != 4) {
      throw wrong("it has no four fields");
    }
    const std::vector<absl::string_view> words = absl::StrSplit(fields[3], ' ');
    Algorithm algorithm;
    const auto settings = SettingsOf(algorithm);
    if (words.size() != settings.size()) {
      throw wrong("an algorithm has nine numbers");
    }
    for (size_t i = 0; i < words.size(); ++i) {
      if (!absl::SimpleAtoi(words[i], settings[i])) {
        throw wrong(absl::StrCat(words[i], " is not a number"));
      }
    }
    auto& products = machines_[absl::StrCat(fields[0], "|", fields[1])];
    if (!products.emplace(std::string(fields[2]), algorithm).second) {
      throw wrong("that product is given twice");
    }
  }
}

const ProductTable& ProductTable::OfBuild() {
  static const ProductTable table(kProductTableText);
  return table;
}

const ProductTable::Algorithm* ProductTable::Find(const std::string& machine,
                                                  const std::string& product) const {
  const auto& products = Of(machine);
  const auto found = products.find(product);
  return found == products.end() ? nullptr : &found->second;
}

const std::map<std::string, ProductTable::Algorithm>& ProductTable::Of(const std::string& machine) const {
  static const std::map<std::string, Algorithm> none;
  const auto products = machines_.find(machine);
  return products == machines_.end() ? none : products->second;
}

std::string ProductTable::DigestOf(const std::string& machine) const {
  std::string text = absl::StrCat(machine, "\n");
  for (const auto& [product, algorithm] : Of(machine)) {
    absl::StrAppend(&text, Line(machine, product, algorithm), "\n");
  }
  return platform::Sha256Of(text);
}

std::string ProductTable::Line(const std::string& machine, const std::string& product,
                               const Algorithm& algorithm) {
  std::string line = absl::StrCat(machine, "|", product);
  Algorithm copy = algorithm;
  char separator = '|';
  for (const uint32_t* setting : SettingsOf(copy)) {
    absl::StrAppend(&line, std::string(1, separator), *setting);
    separator = ' ';
  }
  return line;
}

}  // namespace tandem::ops
