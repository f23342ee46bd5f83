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

// Throws std::invalid_argument with cuBLASLt's text if it has failed.
void CheckProduct(cublasStatus_t status, const char* what);

// A matrix as cuBLASLt sees it, which knows columns that are adjacent: the transpose of ours.
struct Operand {
  explicit Operand(const Array& matrix);

  uint32_t alignment() const;  // of where it begins, at most 16
  std::string text() const;    // as the table names it; empty where it does not

  const void* memory;
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  bool transposed;  // our rows are adjacent
  int64_t stride;
};

// output = addend + factor left right, or without an addend, which is then a second name of the output. The
// factor changes neither text nor algorithm.
struct ProductOperands {
  // Throws std::invalid_argument for what MatrixProduct::Multiply does not take. Refers to the matrices'
  // memory alone.
  explicit ProductOperands(const ProductArgs& product);

  // "bf16 16384x4096 * bf16 transposed 4096x6144 + addend = bf16 16384x6144". Empty where the table does not
  // name such matrices: whose rows or columns follow each other, from a multiple of 16 bytes on.
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

// What cuBLASLt calls one product: types, shapes, strides and an algorithm, for any memory that is aligned
// alike. Immutable; of the handle's GPU.
class ProductPlan {
 public:
  // algorithm: of the table, or null: the first of cuBLASLt's rules. So is what cuBLASLt refuses, with a
  // warning in the log: on every GPU of the machine's name alike, so that ranks still agree. Throws
  // std::invalid_argument where the rules have none that takes at most kGpuLinearWorkBytes of work memory.
  ProductPlan(cublasLtHandle_t handle, const ProductOperands& operands,
              const ProductTable::Algorithm* algorithm);
  ~ProductPlan();
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;

  // What the rules propose for it, at most max_count, best first.
  std::vector<ProductTable::Algorithm> Proposed(cublasLtHandle_t handle, const ProductOperands& operands,
                                                int max_count) const;

  // Whether that algorithm computes it, in kGpuLinearWorkBytes of work memory.
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
