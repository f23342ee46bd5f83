#include "trainer/stage_memory.h"

#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <utility>

#include "device/device.h"

namespace tandem::trainer {

using schedules::Buffer;
using schedules::Operand;
using schedules::Program;

c10::ScalarType ElementTypeOf(model::ComputeType type) {
  switch (type) {
    case model::ComputeType::kFp32:
      return c10::ScalarType::Float;
    case model::ComputeType::kFp64:
      return c10::ScalarType::Double;
  }
  throw std::logic_error("no trainer computes in this type");
}

StageMemory::StageMemory(const schedules::StagePrograms& stage, device::Device& device,
                         std::unique_ptr<device::Region> arena, bool fill_with_nan)
    : arena_(device, std::move(arena), fill_with_nan), host_(device, stage.host_bytes) {
  device.Fill(arena_.all().begin, 0, stage.persistent_bytes);
}

device::Memory StageMemory::At(const Buffer& buffer, int element) const {
  const int64_t offset = buffer.address + element * schedules::RingStride(buffer);
  return schedules::IsHost(buffer.kind) ? host_.At(offset, buffer.bytes.bound)
                                        : arena_.At(offset, buffer.bytes.bound);
}

device::Memory StageMemory::At(const Program& program, const Operand& operand, int parity) const {
  const Buffer& buffer = program.buffers[operand.buffer];
  const int element = buffer.life == schedules::Life::kRing ? (operand.former ? 1 - parity : parity) : 0;
  const device::Memory whole = At(buffer, element);
  if (operand.part < 0) {
    return whole;
  }
  const schedules::BufferPart& part = buffer.parts[operand.part];
  return {whole.begin + part.begin, part.end - part.begin};
}

}  // namespace tandem::trainer
