// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/attention_shape.h"
#include "ops/cuda/kernels.h"
#include "ops/moves.h"
#include "ops/window_starts.h"

namespace tandem::ops::cuda {

// As described in kernels.h.
template <typename E>
int Launch(const AddArgs<E>& args, Stream stream);
int Launch(const CopyArgs& args, Stream stream);
int Launch(const FillArgs& args, Stream stream);
int Launch(const WindowStartsArgs& args, Stream stream);

// Converts the starts of documents, [sequences, length], to int32.
int CopyStarts(const DocumentStarts& documents, int64_t sequences, int64_t length, int32_t* to,
               Stream stream);

}  // namespace tandem::ops::cuda
