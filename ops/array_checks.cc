// SPDX-License-Identifier: Apache-2.0
#include "ops/array_checks.h"

#include "ops/sparse_work.h"

namespace tandem::ops {
namespace {

bool IsThere(const Array& array, DeviceKind device) { return array.defined() && array.on == device; }

}  // namespace

const char* OnThe(DeviceKind device) { return device == DeviceKind::kGpu ? "on a GPU" : "on the CPU"; }

void CheckMatrix(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device) {
  Check(array.rows == rows && array.columns == columns && array.contiguous() && IsThere(array, device), name,
        " must be a contiguous [", rows, ", ", columns, "] matrix ", OnThe(device), ", not ", array.shape());
}

void CheckElements(const char* name, const Array& array, int64_t elements, DeviceKind device) {
  Check(array.elements() == elements && array.contiguous() && IsThere(array, device), name,
        " must be contiguous with ", elements, " elements ", OnThe(device), ", not ", array.shape());
}

void CheckRows(const char* name, const Array& array, int64_t rows, int64_t columns, DeviceKind device) {
  Check(array.rows == rows && array.columns == columns && (columns <= 1 || array.column_stride == 1) &&
            IsThere(array, device),
        name, " must be a [", rows, ", ", columns, "] matrix with adjacent columns ", OnThe(device), ", not ",
        array.shape());
}

Tokens TokensOf(const Array& tokens, DeviceKind device) {
  return {RowsOf<int64_t>("token ids", tokens, tokens.rows, tokens.columns, device), tokens.rows,
          tokens.columns, tokens.row_stride};
}

DocumentStarts DocumentsOf(const Array& documents, int64_t sequences, int64_t length, DeviceKind device) {
  if (!documents.defined()) {
    return {};
  }
  return {.starts = RowsOf<int64_t>("documents", documents, sequences, length, device),
          .stride = documents.row_stride};
}

const int64_t* RowsThere(const Array& begins, DeviceKind device) {
  if (!begins.defined()) {
    return nullptr;
  }
  return ElementsOf<int64_t>("begins", begins, begins.elements(), device) + begins.elements() - 1;
}

void CheckExperts(const char* operation, int64_t experts, DeviceKind device) {
  Check(device == DeviceKind::kCpu || experts <= kMostGpuGroups, operation, " on a GPU takes at most ",
        kMostGpuGroups, " experts, or ranks, not ", experts);
}

Workspace Checked(const char* operation, Workspace work, int64_t bytes) {
  Check(work.bytes >= bytes && (work.begin != nullptr || bytes == 0), operation, " needs ", bytes,
        " bytes of work memory, not ", work.bytes);
  return work;
}

}  // namespace tandem::ops
