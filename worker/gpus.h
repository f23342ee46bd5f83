#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::worker {

// The GPUs of this machine, as places: index (in the order of the PCI bus), name, uuid and memory. None where
// there is no nvidia-smi. An error where it cannot say, naming the reason: a driver that is broken.
absl::StatusOr<std::vector<v1::Place>> FindGpus();

// Reads what `nvidia-smi --query-gpu=index,name,uuid,memory.total --format=csv,noheader,nounits` prints.
absl::StatusOr<std::vector<v1::Place>> ReadGpus(const std::string& text);

}  // namespace tandem::worker
