// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ops/product.h"

struct CUstream_st;

namespace tandem::ops::cuda {

// Matrix products by cuBLASLt on the current GPU. For bfloat16 operands, sums are float, including those
// between the parts of a product that cuBLASLt splits.
//
// The algorithm for a shape is that of the product table (product_table.h), or else the first that cuBLASLt's
// heuristics propose, which are queried once in a process. Algorithm, shape, types, strides, and whether
// matrices begin at multiples of 16 bytes determine the bits. Thread-safe.
class MatrixProduct {
 public:
  MatrixProduct();
  ~MatrixProduct();

  // a, b: views whose rows or columns are adjacent, of one type: float, double or bfloat16. output: adjacent
  // columns, of that type, or float with bfloat16 operands. Throws std::invalid_argument for anything else,
  // and with cuBLASLt's status if it fails. Chooses the algorithm. The returned function makes one call of
  // cuBLASLt and must not outlive this object.
  std::function<void(CUstream_st* stream)> Bind(const ProductArgs& product);

  // A digest of the current GPU's name, cuBLASLt's version, and the table's entries for both.
  static std::string Digest();

 private:
  class Plans;
  const std::unique_ptr<Plans> plans_;
};

}  // namespace tandem::ops::cuda
