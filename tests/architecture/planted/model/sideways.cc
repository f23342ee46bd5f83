#include "fsdp/unit_shard.h"
