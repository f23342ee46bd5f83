#include "fsdp/sharded_unit.h"
