// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ops/product.h"

struct CUstream_st;

namespace tandem::ops::cuda {

// Matrix products by cuBLASLt, on the current GPU. Sums are of float where operands are of bfloat16, also
// between the parts of one that cuBLASLt splits.
//
// The algorithm of a shape is the table's (product_table.h); of one that it does not name the first that
// cuBLASLt's rules give, asked once a process. It decides the bits, and so do the shape, the types, the
// strides, and whether matrices begin at multiples of 16 bytes. Thread-safe.
class MatrixProduct {
 public:
  MatrixProduct();
  ~MatrixProduct();

  // a, b: views whose rows or columns are adjacent, of one type: float, double or bfloat16; output: adjacent
  // columns, of that type, or of float beside bfloat16. Throws std::invalid_argument for anything else, and
  // with cuBLASLt's status. Chooses the algorithm; what it returns makes the one call of cuBLASLt, and lives
  // no longer than this.
  std::function<void(CUstream_st* stream)> Bind(const ProductArgs& product);

  // Of the current GPU, of cuBLASLt and of what the table says of both.
  static std::string Digest();

 private:
  class Plans;
  const std::unique_ptr<Plans> plans_;
};

}  // namespace tandem::ops::cuda
