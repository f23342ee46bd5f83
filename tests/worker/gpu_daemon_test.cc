// SPDX-License-Identifier: Apache-2.0
// Which GPUs a daemon offers, and how its ranks count them. No GPU is needed.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/worker/daemon_fixture.h"

namespace tandem::worker {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A machine with three GPUs, and a trainer for them that first prints which it may use.
class GpuDaemonTest : public DaemonTest {
 protected:
  GpuDaemonTest() {
    Script("nvidia-smi", "echo '0, H200, GPU-aa, 9'; echo '1, H200, GPU-bb, 9'; echo '2, H200, GPU-cc, 9'\n");
    Script("trainer", "exec " TANDEM_FAKE_TRAINER " \"$@\"\n");
    Script("trainer-cuda", "echo \"visible $CUDA_VISIBLE_DEVICES\"; exec " TANDEM_FAKE_TRAINER " \"$@\"\n");
  }

  void Script(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << "#!/bin/sh\n" << text;
    ASSERT_EQ(chmod((folder_ + "/" + name).c_str(), 0755), 0);
  }

  void StartWorkerThatSees(const std::string& visible) {
    worker_ = std::make_unique<WorkerProcess>(WorkerProcess::Options{
        .controller = controller_->address(),
        .state_folder = folder_ + "/state",
        .slots = 1,
        .trainer = folder_ + "/trainer",
        .environment = {"PATH=" + folder_ + ":/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=" + visible},
        .log = folder_ + "/log"});
  }

  // "cuda0=GPU-cc cpu1=" of the first Hello.
  std::string Slots() {
    EXPECT_TRUE(controller_->WaitFor([](const Seen& seen) { return !seen.hellos.empty(); }));
    std::string text;
    const Seen seen = controller_->seen();
    for (const v1::Slot& slot : seen.hellos.at(0).inventory().slots()) {
      text += (text.empty() ? "" : " ") + std::string(slot.device() == v1::DEVICE_CUDA ? "cuda" : "cpu") +
              std::to_string(slot.index()) + "=" + slot.uuid();
    }
    return text;
  }
};

TEST_F(GpuDaemonTest, RanksNumberVisibleGpusAsOffered) {
  v1::Assignment job = Job("steps-50", 2);
  job.mutable_resolved()->mutable_resources()->set_device(v1::DEVICE_CUDA);
  controller_->Want({job});
  StartWorkerThatSees("2,0");
  EXPECT_EQ(Slots(), "cuda0=GPU-cc cuda1=GPU-aa cpu2=");
  ASSERT_TRUE(controller_->WaitFor(Ended));
  EXPECT_THAT(ReadAll(folder_ + "/state/logs/0123456789ab/attempt-1/rank-1.log"),
              StartsWith("visible GPU-cc,GPU-aa\n"));
}

TEST_F(GpuDaemonTest, AWrongListOffersNoGpu) {
  StartWorkerThatSees("0,7");
  EXPECT_EQ(Slots(), "cpu0=");
  EXPECT_THAT(ReadAll(folder_ + "/log"),
              HasSubstr("CUDA_VISIBLE_DEVICES is '0,7', and '7' is none of the 3 GPUs of this machine"));
}

}  // namespace
}  // namespace tandem::worker
