#pragma once

#include "comm/watchdog.h"

namespace tandem::comm {

using Watch = Watchdog;  // until the trainer says Watchdog

}  // namespace tandem::comm
