// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions marked so are compiled for the host and, where nvcc reads them, for GPUs: one source for
// arithmetic whose bits must agree.
#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif
