// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::ops {

// Which of cuBLASLt's algorithms computes a matrix product, where that was measured: ops/cuda/products.txt,
// which every build contains. What the table does not name is computed by the first algorithm of cuBLASLt's
// own rules.
//
// A line is "GPU|version of cuBLASLt|product|algorithm"; lines that begin with # and empty ones say nothing.
// The algorithm is cuBLASLt's number of it and its settings, in the order of Algorithm. Immutable.
class ProductTable {
 public:
  struct Algorithm {
    uint32_t id = 0;
    uint32_t tile = 0;
    uint32_t stages = 0;
    uint32_t splits = 0;  // of the sums
    uint32_t reduction = 0;
    uint32_t swizzle = 0;
    uint32_t custom = 0;
    uint32_t inner = 0;
    uint32_t cluster = 0;
    bool operator==(const Algorithm&) const = default;
  };

  // Throws std::invalid_argument, with the line.
  explicit ProductTable(const std::string& text);

  // That of this build.
  static const ProductTable& OfBuild();

  // machine: "GPU|version". Null: not in the table.
  const Algorithm* Find(const std::string& machine, const std::string& product) const;

  // All that it names, by product.
  const std::map<std::string, Algorithm>& Of(const std::string& machine) const;

  // SHA-256, hex, of the machine and what the table says of it: where it is the same, the same algorithms
  // run.
  std::string DigestOf(const std::string& machine) const;

  static std::string Line(const std::string& machine, const std::string& product, const Algorithm& algorithm);

 private:
  std::map<std::string, std::map<std::string, Algorithm>> machines_;  // by machine, by product
};

}  // namespace tandem::ops
