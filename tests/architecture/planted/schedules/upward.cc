#include "trainer/executor.h"
