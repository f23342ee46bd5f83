// SPDX-License-Identifier: Apache-2.0
#include "trainer/transfer.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "comm/communicator.h"
#include "device/device.h"

namespace tandem::trainer {

fsdp::BoundCall BindTransfer(comm::Communicator& link, device::Memory memory, const device::Device& device,
                             bool sends) {
  return [&link, sends, bytes = device::FlatTensorIn(device, memory, c10::ScalarType::Byte)]() mutable {
    if (sends) {
      link.Send(bytes);
    } else {
      link.Receive(bytes);
    }
  };
}

}  // namespace tandem::trainer
