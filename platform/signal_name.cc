#include "platform/signal_name.h"

#include <string.h>

namespace tandem::platform {

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace tandem::platform
