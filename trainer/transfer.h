// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/memory.h"
#include "fsdp/unit_shard.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
}

namespace tandem::trainer {

// Sends the bytes of `memory` over a link to another stage, or receives them there. Both arguments outlive
// the call.
fsdp::BoundCall BindTransfer(comm::Communicator& link, device::Memory memory, const device::Device& device,
                             bool sends);

}  // namespace tandem::trainer
