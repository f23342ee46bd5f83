// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::ops {

// For matrix products that were measured, the cuBLASLt algorithm that computes them. It is read from
// ops/cuda/products.txt, which every build contains. A product that is not in the table is computed by the
// first algorithm of cuBLASLt's own rules.
//
// A line is "GPU|version of cuBLASLt|product|algorithm"; empty lines and lines that begin with # are ignored.
// The algorithm is cuBLASLt's number for it, and its settings in the order of Algorithm. Immutable.
class ProductTable {
 public:
  struct Algorithm {
    uint32_t id = 0;
    uint32_t tile = 0;
    uint32_t stages = 0;
    uint32_t splits = 0;  // partial sums over the depth
    uint32_t reduction = 0;
    uint32_t swizzle = 0;
    uint32_t custom = 0;
    uint32_t inner = 0;
    uint32_t cluster = 0;
    bool operator==(const Algorithm&) const = default;
  };

  // Throws std::invalid_argument with the line that is wrong.
  explicit ProductTable(const std::string& text);

  // The table of this build.
  static const ProductTable& OfBuild();

  // `machine` is "GPU|version". Null if the product is not in the table.
  const Algorithm* Find(const std::string& machine, const std::string& product) const;

  // All entries of a machine, by product.
  const std::map<std::string, Algorithm>& Of(const std::string& machine) const;

  // SHA-256 in hexadecimal of the machine and its entries. Equal digests mean that the same algorithms run.
  std::string DigestOf(const std::string& machine) const;

  static std::string Line(const std::string& machine, const std::string& product, const Algorithm& algorithm);

 private:
  std::map<std::string, std::map<std::string, Algorithm>> machines_;  // by machine and product
};

}  // namespace tandem::ops
