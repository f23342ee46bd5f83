// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks functions that are compiled for the host and, by nvcc, for GPUs: arithmetic whose bits must agree has
// one source.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif
