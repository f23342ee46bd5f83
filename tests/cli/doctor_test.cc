// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "cli/doctor/checks.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::cli {
namespace {

using Level = Finding::Level;
using ::testing::HasSubstr;

TEST(DriverTest, TheVersionIsReadFromTheKernelsText) {
  EXPECT_EQ(DriverVersion(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 03:23:49 UTC 2025\n"
                "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"),
            "570.133.20");
  EXPECT_EQ(
      DriverVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"),
      "580.65.06");
  EXPECT_EQ(DriverVersion("GCC version:  gcc version 12.2.0\n"), "");
}

TEST(DriverTest, DriverTooOldForCudaFails) {
  EXPECT_EQ(CheckDriver("580.65.06").level, Level::kOk);
  EXPECT_EQ(CheckDriver("570.133.20").level, Level::kFail);
  EXPECT_THAT(CheckDriver("570.133.20").text, HasSubstr("needs 580"));
  EXPECT_EQ(CheckDriver("").level, Level::kFail);
}

TEST(NcclTest, LibtorchWithoutExpertExchangeFails) {
  EXPECT_EQ(CheckNcclVersion(22809, "/opt/libnccl.so.2").text, "2.28.9 in /opt/libnccl.so.2");
  EXPECT_EQ(CheckNcclVersion(22809, "").level, Level::kOk);
  EXPECT_EQ(CheckNcclVersion(22707, "").level, Level::kFail);
  EXPECT_THAT(CheckNcclVersion(22707, "/n").text, HasSubstr("2.27.7 in /n is too old; install NCCL 2.28"));
}

TEST(LibrariesTest, MissingOnesHaveNoPath) {
  const std::map<std::string, std::string> libraries = LoadedLibraries(
      "\tlinux-vdso.so.1 (0x00007ffd)\n"
      "\tlibnccl.so.2 => /opt/nccl/libnccl.so.2 (0x00007f1)\n"
      "\tlibtorch_cuda.so => not found\n"
      "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n");
  EXPECT_EQ(libraries, (std::map<std::string, std::string>{{"libnccl.so.2", "/opt/nccl/libnccl.so.2"},
                                                           {"libtorch_cuda.so", ""}}));
}

TEST(FolderTest, ExistingFolderIsTriedAndLeft) {
  std::optional<platform::TemporaryFolder> made(std::in_place);
  const std::string folder = made->path();
  for (const Finding& finding : CheckShared(folder)) {
    EXPECT_NE(finding.level, Level::kFail) << finding.text;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  made.reset();
  EXPECT_EQ(CheckShared(folder)[0].level, Level::kFail);
}

TEST(FolderTest, AFolderThatCannotBeWrittenFails) {
  const std::vector<Finding> findings = CheckShared("/proc/self");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kFail);
  EXPECT_THAT(findings[0].text, HasSubstr("cannot make a file"));
}

TEST(ProgramsTest, OneOfAnotherBuildFails) {
  const platform::TemporaryFolder folder;
  std::filesystem::permissions(folder.Write("tandem-worker", "#!/bin/sh\necho tandem-worker 9.9.9\n"),
                               std::filesystem::perms::owner_all);
  const std::vector<Finding> findings = CheckPrograms(folder.path());
  ASSERT_GE(findings.size(), 3u);
  EXPECT_EQ(findings[2].level, Level::kFail);
  EXPECT_THAT(findings[2].text, HasSubstr("tandem-worker 9.9.9"));
}

}  // namespace
}  // namespace tandem::cli
