// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

// Processes of their own, also some in which a system call fails, as on a file system that does not have it.
namespace tandem::platform {

// Makes a system call fail with `error` in this process from now on. Returns false if seccomp is not
// available.
inline bool Refuse(uint32_t system_call, uint32_t error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Calls `part` in a child process and returns its result.
template <typename Part>
bool InChild(Part part) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(part() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Expects `part` to return true in a child process in which the system call fails. Skips the test if there is
// no seccomp.
#define EXPECT_IN_CHILD_WITHOUT(system_call, error, part)                                               \
  do {                                                                                                  \
    if (!::tandem::platform::InChild([&] { return ::tandem::platform::Refuse(system_call, error); })) { \
      GTEST_SKIP() << "no seccomp here";                                                                \
    }                                                                                                   \
    EXPECT_TRUE(::tandem::platform::InChild([&] {                                                       \
      return ::tandem::platform::Refuse(system_call, error) && (part)();                                \
    })) << std::strerror(error);                                                                        \
  } while (false)

}  // namespace tandem::platform
