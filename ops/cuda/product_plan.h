// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/product.h"
#include "ops/product_table.h"
#include "ops/workspace.h"

namespace tandem::ops::cuda {

// Throws std::invalid_argument with cuBLASLt's message if `status` is an error.
void CheckProduct(cublasStatus_t status, const char* what);

// A matrix as cuBLASLt describes it. cuBLASLt's matrices are column-major, so it computes with the transposes
// of ours.
struct Operand {
  explicit Operand(const Array& matrix);

  uint32_t alignment() const;  // of `memory` in bytes, at most 16
  std::string text() const;    // its key in the table; empty if the table has no such matrices

  const void* memory;
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  bool transposed;  // row_stride is 1 instead of column_stride
  int64_t stride;
};

// output = addend + factor left right. Without an addend, `adds` is false and `addend` is the output. The
// factor changes neither text nor algorithm.
struct ProductOperands {
  // Throws std::invalid_argument for operands that MatrixProduct::Bind refuses. Keeps the addresses of the
  // matrices.
  explicit ProductOperands(const ProductArgs& product);

  // "bf16 16384x4096 * bf16 transposed 4096x6144 + addend = bf16 16384x6144". Empty unless each matrix is
  // without gaps and aligned to 16 bytes, because the table has no other matrices.
  std::string text() const;

  Operand left;
  Operand right;
  Operand output;
  bool adds;
  Operand addend;
  double factor;
};

// The current GPU and the version of cuBLASLt, as the table names them.
std::string ProductMachine();

// What cuBLASLt needs for one product: types, shapes, strides and an algorithm. A plan serves all operands of
// the same alignment on the handle's GPU. Immutable.
class ProductPlan {
 public:
  // `algorithm` is from the table. If it is null, or if cuBLASLt refuses it, the plan has the first algorithm
  // that cuBLASLt's heuristics propose; a refusal is logged as a warning. GPUs of one name refuse the same
  // algorithms, so ranks still agree. Throws std::invalid_argument if no proposal needs at most
  // kGpuLinearWorkBytes of work memory.
  ProductPlan(cublasLtHandle_t handle, const ProductOperands& operands,
              const ProductTable::Algorithm* algorithm);
  ~ProductPlan();
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;

  // Returns the algorithms that the heuristics propose, at most max_count, best first.
  std::vector<ProductTable::Algorithm> Proposed(cublasLtHandle_t handle, const ProductOperands& operands,
                                                int max_count) const;

  // Whether that algorithm can compute the product with kGpuLinearWorkBytes of work memory.
  bool Takes(cublasLtHandle_t handle, const ProductTable::Algorithm& algorithm) const;

  void Run(cublasLtHandle_t handle, const ProductOperands& operands, Workspace work,
           CUstream_st* stream) const;

 private:
  std::vector<cublasLtMatmulAlgo_t> ProposedAlgorithms(cublasLtHandle_t handle,
                                                       const ProductOperands& operands, int max_count) const;
  void Describe(const ProductOperands& operands);
  cublasStatus_t Configure(cublasLtHandle_t handle, const ProductTable::Algorithm& algorithm,
                           cublasLtMatmulAlgo_t& configured) const;

  const cudaDataType_t type_;
  const cudaDataType_t output_type_;
  cublasLtMatmulDesc_t product_ = nullptr;
  const cublasLtMatrixLayout_t a_;
  const cublasLtMatrixLayout_t b_;
  const cublasLtMatrixLayout_t addend_;
  const cublasLtMatrixLayout_t output_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace tandem::ops::cuda
