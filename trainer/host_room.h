// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device
namespace tandem::trainer {

// The memory of its machine that a rank wants in addition, and the memory that the machine has left.
struct HostRoom {
  std::string host;
  int64_t wanted = 0;     // in bytes
  int64_t available = 0;  // in bytes, before any rank has taken what it wants
};

std::string ToText(const HostRoom& room);

// `texts` has ToText of every rank. Names the first machine that has no room for what all its ranks want,
// with a tenth of its available memory to spare, and says why. Empty if all machines have room.
std::string WhyNoRoom(const std::vector<std::string>& texts);

// Pinned memory of the host, or the reason why no rank has it.
struct SharedRoom {
  std::shared_ptr<device::Region> region;
  std::string refused;
};

// Collective. Reserves `bytes` on this rank's machine `host` if every machine has room for what all its ranks
// want and every rank can reserve its own; otherwise the memory is null on all ranks. Throws CommError.
SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes);

}  // namespace tandem::trainer
