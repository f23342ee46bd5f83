// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::worker {

// Asks nvidia-smi for the GPUs of this machine, as slots with index (in the order of the PCI bus), name, uuid
// and memory. Empty if there is no nvidia-smi. If it fails, for example because a driver is broken, returns
// an error with the reason.
absl::StatusOr<std::vector<v1::Slot>> FindGpus();

// Parses the output of `nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv,noheader,nounits`. A
// memory of [N/A], as of a GPU that shares the machine's memory, becomes 0: unknown.
absl::StatusOr<std::vector<v1::Slot>> ReadGpus(const std::string& text);

// FindMigs returns the parts into which GPUs are divided (MIG), with index -1, from the output of `nvidia-smi
// -L`, which ReadMigs parses.
absl::StatusOr<std::vector<v1::Slot>> FindMigs();
std::vector<v1::Slot> ReadMigs(const std::string& text);

// Returns the entries of `gpus` (GPUs, then MIG parts) that this process may use, renumbered from 0 as CUDA
// numbers them. `visible` is the value of CUDA_VISIBLE_DEVICES, by which Slurm and Kubernetes assign GPUs:
// numbers, or UUIDs that may be abbreviated; null (not set) means all GPUs. Returns an error for an entry
// that is no GPU of this machine, because CUDA would silently ignore that entry and all later ones, and for a
// MIG part together with any other entry, because CUDA gives a process only one part.
absl::StatusOr<std::vector<v1::Slot>> VisibleGpus(const std::vector<v1::Slot>& gpus, const char* visible);

// The GPUs that a worker offers, or why it offers none although there are some.
struct OfferedGpus {
  std::vector<v1::Slot> slots;
  std::string unused;  // why none is offered; empty: some are, or there are none
};

// `found` is the result of FindGpus; `has_program` says whether a trainer for GPUs is installed.
OfferedGpus OfferGpus(const absl::StatusOr<std::vector<v1::Slot>>& found, const char* visible,
                      bool has_program);

// The value of CUDA_VISIBLE_DEVICES (UUIDs) with which CUDA gives these GPUs the numbers of their slots.
std::string VisibleDevices(const std::vector<v1::Slot>& gpus);

}  // namespace tandem::worker
