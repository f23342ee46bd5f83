// SPDX-License-Identifier: Apache-2.0
#include "trainer/exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kExportPatience = absl::Seconds(120);

class ExportsTest : public testing::Test {
 protected:
  // Exports every fourth step with a program that is this shell script: $2 is the checkpoint, $4 the export.
  Exports Make(const std::string& script) {
    const std::string program = folder_.Write("tandem", "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms::owner_all);
    return MakeWith(program);
  }
  Exports MakeWith(const std::string& program) {
    v1::Exports options;
    options.set_every_steps(4);
    options.set_to(folder_.path() + "/out");
    options.set_dtype(v1::COMPUTE_TYPE_BF16);
    return {options, program,
            [this](int64_t step, const std::string& message) { failed_.emplace_back(step, message); }};
  }
  std::string In(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }

  const platform::TemporaryFolder folder_;
  std::vector<std::pair<int64_t, std::string>> failed_;
};

TEST_F(ExportsTest, StepsAreExportedInOrderWithLessPriority) {
  folder_.Write("hold", "");
  Exports exports = Make(absl::StrCat("while [ -e ", In("hold"), " ]; do sleep 0.02; done\necho \"$@\" >> ",
                                      In("calls"), "\nnice > ", In("nice"), "\nmkdir -p $4\n"));
  for (const int64_t step : {2, 4, 6, 8}) {
    exports.Committed(step, absl::StrCat("/saved/step-", step));
  }
  EXPECT_FALSE(exports.Await(absl::Milliseconds(50)));
  EXPECT_EQ(exports.Pending(), (std::set<int64_t>{4, 8}));
  fs::remove(In("hold"));
  EXPECT_TRUE(exports.Await(kExportPatience));
  EXPECT_TRUE(exports.Pending().empty());
  EXPECT_TRUE(failed_.empty());
  std::ifstream calls(In("calls"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(calls), {}),
            absl::StrCat("export /saved/step-4 --to ", In("out/step-4"), " --dtype bf16\n",
                         "export /saved/step-8 --to ", In("out/step-8"), " --dtype bf16\n"));
  int niceness = 0;
  std::ifstream(In("nice")) >> niceness;
  EXPECT_GE(niceness, 10);
}

TEST_F(ExportsTest, FailedExportIsReportedAndTheNextRuns) {
  Exports exports = Make("echo first\necho 'error: no room' >&2\n[ $2 = /saved/step-8 ]\n");
  exports.Committed(4, "/saved/step-4");
  exports.Committed(8, "/saved/step-8");
  EXPECT_TRUE(exports.Await(kExportPatience));
  EXPECT_THAT(failed_, testing::ElementsAre(testing::Pair(4, "error: no room")));
}

TEST_F(ExportsTest, AProgramThatIsNotThereIsReported) {
  Exports exports = MakeWith("/nowhere/tandem");
  exports.Committed(4, "/saved/step-4");
  EXPECT_TRUE(exports.Await(kExportPatience));
  EXPECT_THAT(failed_,
              testing::ElementsAre(testing::Pair(4, "start /nowhere/tandem: No such file or directory")));
}

TEST_F(ExportsTest, EndStopsTheExportAndNamesUnexportedSteps) {
  Exports exports = Make("mkdir -p $4.tmp.abc\nwhile true; do sleep 0.02; done\n");
  exports.Committed(4, "/saved/step-4");
  exports.Committed(8, "/saved/step-8");
  const absl::Time deadline = absl::Now() + kExportPatience;
  while (!fs::exists(In("out/step-4.tmp.abc")) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  exports.End("the job was stopped");
  EXPECT_THAT(failed_, testing::ElementsAre(testing::Pair(4, "the job was stopped"),
                                            testing::Pair(8, "the job was stopped")));
  EXPECT_TRUE(fs::exists(In("out")));
  EXPECT_TRUE(fs::is_empty(In("out"))) << "nothing of it is left";
}

}  // namespace
}  // namespace tandem::trainer
