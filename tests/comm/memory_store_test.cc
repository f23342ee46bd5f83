// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/memory_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/time.h"
#include "comm/communicator.h"

namespace tandem::comm {
namespace {

TEST(MemoryStoreTest, GetWaitsForSet) {
  MemoryStore store;
  std::thread setter([&] { store.Set("key", "value"); });
  EXPECT_EQ(store.Get("key", absl::Seconds(10)), "value");
  setter.join();
}

TEST(MemoryStoreTest, GetNamesTheKeyThatNobodySet) {
  MemoryStore store;
  try {
    store.Get("a/b", absl::ZeroDuration());
    FAIL() << "returned";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "rendezvous: nobody has set key a/b in time");
  }
}

TEST(MemoryStoreTest, KeysAreWrittenOnce) {
  MemoryStore store;
  store.Set("key", "value");
  EXPECT_NO_THROW(store.Set("key", "value"));
  EXPECT_THROW(store.Set("key", "other"), CommError);
}

}  // namespace
}  // namespace tandem::comm
