// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::worker {

// The GPUs of this machine, as slots: index (in the order of the PCI bus), name, uuid and memory. Empty if
// there is no nvidia-smi. An error with the reason if it fails, for example because a driver is broken.
absl::StatusOr<std::vector<v1::Slot>> FindGpus();

// Reads what `nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv,noheader,nounits` prints.
// Memory that it does not name ([N/A], of a GPU that shares the machine's) is 0: unknown.
absl::StatusOr<std::vector<v1::Slot>> ReadGpus(const std::string& text);

// The parts that GPUs are divided into (MIG), and what ReadMigs reads: `nvidia-smi -L`. Their index is -1.
absl::StatusOr<std::vector<v1::Slot>> FindMigs();
std::vector<v1::Slot> ReadMigs(const std::string& text);

// Those of the machine's GPUs, or of their parts behind them, that this process may use, numbered from 0 as
// CUDA numbers them for it. `visible` is the value of CUDA_VISIBLE_DEVICES (numbers, or UUIDs that may be
// cut), by which Slurm and Kubernetes hand out GPUs; null if it is not set: all. An error for an entry that
// is no GPU of this machine, because CUDA would silently leave out that entry and all later ones, and for a
// part beside anything else, because CUDA gives a process only one part.
absl::StatusOr<std::vector<v1::Slot>> VisibleGpus(const std::vector<v1::Slot>& gpus, const char* visible);

// The GPUs that a worker offers, or why it offers none although there are some.
struct OfferedGpus {
  std::vector<v1::Slot> slots;
  std::string unused;  // empty: it offers some, or there are none
};

// found: of FindGpus. has_program: whether there is a trainer for them.
OfferedGpus OfferGpus(const absl::StatusOr<std::vector<v1::Slot>>& found, const char* visible,
                      bool has_program);

// The value of CUDA_VISIBLE_DEVICES with which CUDA numbers the GPUs as these slots, whatever it counted by.
std::string VisibleDevices(const std::vector<v1::Slot>& gpus);

}  // namespace tandem::worker
