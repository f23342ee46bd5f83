// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions with this mark are compiled for the host and, by nvcc, for GPUs: one source for arithmetic whose
// bits must agree.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif
