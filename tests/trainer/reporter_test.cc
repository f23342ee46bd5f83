// SPDX-License-Identifier: Apache-2.0
#include "trainer/reporter.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/tree_gather.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/run_thread_ranks.h"
#include "tests/comm/thread_communicator.h"
#include "tests/trainer/report_text.h"

namespace tandem::trainer {
namespace {

using comm::Communicator;

fsdp::ParameterNorms Squares(double weight, double gradient, double update) {
  fsdp::ParameterNorms norms;
  norms.weight.squares.Add(weight);
  norms.gradient.squares.Add(gradient);
  norms.update.squares.Add(update);
  return norms;
}

fsdp::ParameterNorms Maxima(double weight, double gradient, double update) {
  fsdp::ParameterNorms norms;
  norms.weight.max_abs = weight;
  norms.gradient.max_abs = gradient;
  norms.update.max_abs = update;
  return norms;
}

// Every rank has microbatches of its own.
RankSharing EachAlone(int ranks) {
  RankSharing sharing;
  for (int rank = 0; rank < ranks; ++rank) {
    sharing.losses.push_back({rank});
  }
  return sharing;
}

template <typename Repeated>
std::vector<typename Repeated::value_type> ListOf(const Repeated& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::map<std::string, double> ScalarsOf(const v1::StepReport& report) {
  return {report.scalars().begin(), report.scalars().end()};
}

void ExpectNoFailure(int64_t, std::exception_ptr) { ADD_FAILURE() << "the reporter failed"; }

// What the reporters of some ranks are made with. The norms are of parameters of these sizes, each of which
// every rank owns unless `own` says which.
struct Reporting {
  int ranks = 1;
  std::vector<int64_t> item_elements = {};
  std::vector<std::vector<int64_t>> own = {};  // by rank
  std::optional<RankSharing> sharing = {};     // unset: EachAlone
};

// The reports of what each rank submits, and the places of each that are not finite.
struct Reported {
  std::vector<v1::StepReport> reports;
  std::vector<std::vector<NonfiniteGradient>> nonfinite;
};

Reported ReportsOf(const Reporting& with, const std::function<std::vector<StepRecord>(int rank)>& records) {
  Reported reported;
  std::vector<int64_t> all(with.item_elements.size());
  std::iota(all.begin(), all.end(), 0);
  comm::RunThreadRanks(with.ranks, [&](Communicator& comm) {
    Reporter reporter(
        comm, with.item_elements, with.own.empty() ? all : with.own[comm.rank()],
        with.sharing.value_or(EachAlone(with.ranks)),
        [&](const v1::StepReport& report, const std::vector<NonfiniteGradient>& nonfinite) {
          reported.reports.push_back(report);
          reported.nonfinite.push_back(nonfinite);
        },
        ExpectNoFailure);
    for (StepRecord& record : records(comm.rank())) {
      reporter.Submit(std::move(record));
    }
    reporter.Flush();
  });
  return reported;
}

v1::StepReport ReportOfOne(const Reporting& with, const std::function<StepRecord(int rank)>& record) {
  const Reported reported = ReportsOf(with, [&](int rank) { return std::vector{record(rank)}; });
  EXPECT_EQ(reported.reports.size(), 1u);
  return reported.reports.at(0);
}

TEST(ReporterTest, RankZeroReportsTheFoldOfAllRanks) {
  const v1::StepReport summary = ReportOfOne({.ranks = 2, .item_elements = {4, 9}}, [](double rank) {
    return StepRecord{
        .report = ReportOf("step: 3 grad_norm: 0.5 learning_rate: 0.1 tokens: 64 seconds: 2 "
                           "nonfinite: 1"),
        .losses = {1 + rank, 3 + rank},
        .divisor = 4,
        // The last of rank 1 is none of them.
        .validation = {{.extent = {.batches = 3, .divisor = 3}, .losses = {10 + 2 * rank, 20 + 1000 * rank}}},
        .norms = std::vector{Squares(9, 16, 0), Squares(rank * 36, 1, 4)}};
  });
  EXPECT_EQ(summary.step(), 3);
  EXPECT_EQ(summary.loss(), 2.5);
  EXPECT_EQ(summary.grad_norm(), 0.5);
  EXPECT_EQ(summary.nonfinite(), 1);
  EXPECT_EQ(ScalarsOf(summary), (std::map<std::string, double>{{"validation_loss", 14}}));
  EXPECT_EQ(ListOf(summary.norms().weight()), (std::vector<double>{std::sqrt(18), 6}));
  EXPECT_EQ(ListOf(summary.norms().gradient()), (std::vector<double>{std::sqrt(32), std::sqrt(2)}));
  EXPECT_EQ(ListOf(summary.norms().update()), (std::vector<double>{0, std::sqrt(8)}));
  EXPECT_EQ(ListOf(summary.norms().rms()), (std::vector<double>{std::sqrt(18.0 / 4), 2}));
}

TEST(ReporterTest, TextsHaveLossesAndAWeightedMean) {
  const v1::StepReport summary = ReportOfOne({.ranks = 2}, [](double rank) {
    return StepRecord{.report = ReportOf("step: 0"),
                      .validation = {{.extent = {.name = "en", .batches = 3, .divisor = 3},
                                      .losses = {10 + 2 * rank, 20 + 1000 * rank}},
                                     {.extent = {.name = "de", .batches = 1, .divisor = 0.5},
                                      .losses = {4 + 1000 * rank}}}};
  });
  EXPECT_EQ(ScalarsOf(summary),
            (std::map<std::string, double>{
                {"validation_loss/en", 14}, {"validation_loss/de", 8}, {"validation_loss", 46 / 3.5}}));
}

// Of three parameters rank 0 owns the first and a part of the second, rank 1 the rest of it, rank 2 the last,
// and rank 3 nothing.
TEST(ReporterTest, NormsAreThoseOfTheirOwners) {
  const std::vector<std::vector<fsdp::ParameterNorms>> norms = {
      {Squares(9, 1, 1), Squares(4, 0, 0)}, {Squares(16, 3, 8)}, {Squares(36, std::nan(""), 0)}, {}};
  const Reported reported =
      ReportsOf({.ranks = 4, .item_elements = {4, 9, 1}, .own = {{1, 0}, {1}, {2}, {}}}, [&](int rank) {
        return std::vector<StepRecord>{{.report = ReportOf("step: 1"), .losses = {1}, .norms = norms[rank]},
                                       {.report = ReportOf("step: 2"), .losses = {1}, .norms = norms[rank]},
                                       {.report = ReportOf("step: 3"), .losses = {1}}};
      });
  ASSERT_EQ(reported.reports.size(), 3u);
  for (const v1::StepReport& summary : {reported.reports[0], reported.reports[1]}) {
    EXPECT_EQ(ListOf(summary.norms().weight()), (std::vector<double>{2, 5, 6}));
    EXPECT_EQ(ListOf(summary.norms().update()), (std::vector<double>{0, 3, 0}));
    EXPECT_EQ(summary.norms().gradient(1), 2);
  }
  EXPECT_EQ(reported.reports[2].norms().weight_size(), 0);
  const std::vector<NonfiniteGradient> broken = {{.parameter = 2, .rank = 2}};
  EXPECT_EQ(reported.nonfinite, (std::vector<std::vector<NonfiniteGradient>>{broken, broken, {}}));
}

// Notes how many bytes a rank sends of its own.
class CountingBytes final : public comm::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void AllToAllRows(comm::Memory input, const std::vector<int64_t>& sends, comm::Memory output,
                    const std::vector<int64_t>& receives, int64_t row_bytes) override {
    sent = std::max(sent, *std::max_element(sends.begin(), sends.end()) * row_bytes);
    inner_->AllToAllRows(input, sends, output, receives, row_bytes);
  }

  int64_t sent = 0;
};

double MillisecondsOfThisThread() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Of 18,000 parameters, as many as a model of 128 experts in 48 layers has, each of 512 ranks owns 36 or
// fewer: its message has room for these, and not for all.
TEST(ReporterTest, RanksReportOnlyWhatTheyOwn) {
  constexpr int kRanks = 512;
  constexpr int64_t kParameters = 18'000;
  constexpr int kFirstLeaf = (kRanks - 2) / comm::kTreeDegree + 1;  // others send what is below them too
  auto groups = comm::MakeThreadCommunicators("report", kRanks);
  std::vector<double> times;
  std::vector<v1::StepReport> reported;
  comm::RunThreadRanks(kRanks, [&](int rank) {
    std::vector<int64_t> own;
    std::vector<fsdp::ParameterNorms> norms;
    for (int64_t item = rank; item < kParameters; item += kRanks) {
      own.push_back(item);
      norms.push_back(Squares(static_cast<double>(item * item), 0, 0));
    }
    CountingBytes comm(std::move(groups[static_cast<size_t>(rank)]));
    Reporter reporter(
        comm, std::vector<int64_t>(kParameters, 1), own, EachAlone(kRanks),
        [&](const v1::StepReport& report, const std::vector<NonfiniteGradient>&) {
          times.push_back(MillisecondsOfThisThread());
          reported.push_back(report);
        },
        ExpectNoFailure);
    for (const char* step : {"step: 1", "step: 2", "step: 3"}) {
      reporter.Submit({.report = ReportOf(step), .losses = {1}, .divisor = kRanks, .norms = norms});
    }
    reporter.Flush();
    if (rank >= kFirstLeaf) {
      EXPECT_GT(comm.sent, 0);
      EXPECT_LE(comm.sent, (64 << 10) + 72 * static_cast<int64_t>(own.size()));
    }
  });
  ASSERT_EQ(reported.size(), 3u);
  EXPECT_EQ(reported[0].loss(), 1);
  ASSERT_EQ(reported[0].norms().weight_size(), kParameters);
  for (int64_t item = 0; item < kParameters; ++item) {
    ASSERT_EQ(reported[0].norms().weight(static_cast<int>(item)), static_cast<double>(item));
  }
  // Of rank 0's thread, whatever else the machine does; the report of a step is printed and copied in it.
  const double fold = std::min(times[1] - times[0], times[2] - times[1]);
  std::printf("%d ranks' reports folded in %.1f ms\n", kRanks, fold);
  EXPECT_LE(fold, 50);
}

// A rank whose gradients are not numbers says so by its sum of squares.
TEST(ReporterTest, LargestMagnitudeCoversAllRanks) {
  const Reported reported = ReportsOf({.ranks = 2, .item_elements = {4, 9}}, [](int rank) {
    fsdp::ParameterNorms broken = Maxima(4, 1, 0);
    if (rank == 0) {
      broken.gradient.squares.Add(std::nan(""));
    }
    return std::vector<StepRecord>{
        {.report = ReportOf("step: 1"),
         .losses = {1},
         .norms = std::vector{rank == 0 ? Maxima(3, 0.5, 7) : Maxima(2, 8, 0.25), broken}}};
  });
  ASSERT_EQ(reported.reports.size(), 1u);
  const v1::Norms& norms = reported.reports[0].norms();
  EXPECT_EQ(ListOf(norms.max_abs()), (std::vector<double>{3, 4}));
  EXPECT_EQ(norms.gradient_max_abs(0), 8);
  EXPECT_TRUE(std::isnan(norms.gradient_max_abs(1)));
  EXPECT_EQ(ListOf(norms.update_max_abs()), (std::vector<double>{7, 0}));
  EXPECT_EQ(reported.nonfinite[0], (std::vector<NonfiniteGradient>{{.parameter = 1, .rank = 0}}));
}

// The load of 2 experts in each of 2 layers, 2 microbatches a rank.
TEST(ReporterTest, ExpertLoadsAddUpOverRanks) {
  const v1::StepReport summary = ReportOfOne({.ranks = 2, .item_elements = {4}}, [](double rank) {
    return StepRecord{.report = ReportOf("step: 1"),
                      .losses = {1, 2},
                      .divisor = 4,
                      .routers = {{.layer = 1,
                                   .tokens = {3 + rank, 5 - rank},
                                   .dropped = rank,
                                   .losses = {{.balance = 1 + rank, .z = 4}, {.balance = 3 + rank, .z = 6}}},
                                  {.layer = 3,
                                   .tokens = {8, 0},
                                   .losses = {{.balance = 2, .z = rank}, {.balance = 2, .z = rank}}}},
                      .norms = std::vector{Squares(9, 16, 0)}};
  });
  EXPECT_EQ(summary.loss(), 1.5);
  EXPECT_EQ(ListOf(summary.norms().weight()), std::vector<double>{std::sqrt(18)});
  ASSERT_EQ(summary.norms().experts_size(), 2);
  EXPECT_EQ(summary.norms().experts(0).ShortDebugString(),
            "layer: 1 tokens: 7 tokens: 9 dropped: 1 balance_loss: 2.5 z_loss: 5");
  EXPECT_EQ(summary.norms().experts(1).ShortDebugString(),
            "layer: 3 tokens: 16 tokens: 0 balance_loss: 2 z_loss: 0.5");
  EXPECT_EQ(ScalarsOf(summary), (std::map<std::string, double>{{"moe_balance_loss", 2.25},
                                                               {"moe_z_loss", 2.75},
                                                               {"moe_largest_load", 2},
                                                               {"moe_idle", 1},
                                                               {"moe_dropped", 1},
                                                               {"moe_further_passes", 0}}));
}

// Four ranks, of which 0 and 2, and 1 and 3, share the experts; a rank computes ten rows at a time.
TEST(ReporterTest, PassesCountAGroupsRows) {
  // By rank, microbatch and receiver: what the group sends the first and the second of its ranks in each.
  const std::vector<std::vector<double>> rows[] = {
      {{5, 0}, {6, 4}}, {{10, 0}, {0, 10}}, {{5, 10}, {15, 4}}, {{10, 0}, {0, 11}}};
  const RankSharing sharing{.losses = EachAlone(4).losses, .experts = {{0, 2}, {1, 3}}, .rows_at_a_time = 10};
  const v1::StepReport summary = ReportOfOne({.ranks = 4, .sharing = sharing}, [&](int rank) {
    return StepRecord{.report = ReportOf("step: 1"),
                      .losses = {1, 2},
                      .routers = {{.tokens = {1, 1}, .losses = {{}, {}}, .rows = rows[rank]}}};
  });
  // Ranks 0 and 2: 10 and 10, then 21 and 8 rows. Ranks 1 and 3: 20 and 0, then 0 and 21.
  ASSERT_EQ(summary.norms().experts_size(), 1);
  EXPECT_EQ(summary.norms().experts(0).further_passes(), 2 + 1 + 2);
  EXPECT_EQ(summary.scalars().at("moe_further_passes"), 5);
}

// Addition is not associative: 1e16 + 1 + 1 - 1e16 depends on the order.
TEST(ReporterTest, LossesAddInMicrobatchOrder) {
  const std::vector<double> global = {1e16, 1, 1, -1e16};
  const double expected = (((1e16 + 1) + 1) - 1e16) / 4;
  for (const int ranks : {1, 2, 4}) {
    const v1::StepReport summary = ReportOfOne({.ranks = ranks}, [&](int rank) {
      StepRecord record{.report = ReportOf("step: 1"), .divisor = 4, .routers = {{.tokens = {1}}}};
      for (int round = 0; round < 4 / ranks; ++round) {
        record.losses.push_back(global[round * ranks + rank]);
        record.routers[0].losses.push_back({.z = global[round * ranks + rank]});
      }
      return record;
    });
    EXPECT_EQ(summary.loss(), expected) << ranks;
    EXPECT_EQ(summary.norms().experts(0).z_loss(), expected) << ranks << ", of routers";
  }
}

TEST(ReporterTest, SubmitWaitsForThePreviousReport) {
  comm::RunThreadRanks(1, [](Communicator& comm) {
    std::mutex mu;
    std::condition_variable changed;
    bool open = false;
    std::atomic<bool> submitted{false};
    Reporter reporter(
        comm, {}, {}, EachAlone(comm.size()),
        [&](const v1::StepReport&, const std::vector<NonfiniteGradient>&) {
          std::unique_lock<std::mutex> lock(mu);
          changed.wait(lock, [&] { return open; });
        },
        ExpectNoFailure);
    reporter.Submit({.report = ReportOf("step: 1"), .losses = {1}});
    std::thread second([&] {
      reporter.Submit({.report = ReportOf("step: 2"), .losses = {1}});
      submitted = true;
    });
    EXPECT_FALSE(submitted);  // cannot be: step 1 is not reported before `open`
    {
      const std::lock_guard<std::mutex> lock(mu);
      open = true;
      changed.notify_all();
    }
    second.join();
    EXPECT_TRUE(submitted);
    reporter.Flush();
  });
}

TEST(ReporterTest, LostPeerFailsTheFlush) {
  int64_t failed_step = 0;
  int failures = 0;
  comm::RunThreadRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.Abort();
      return;
    }
    Reporter reporter(
        comm, {}, {}, EachAlone(comm.size()),
        [](const v1::StepReport&, const std::vector<NonfiniteGradient>&) { ADD_FAILURE(); },
        [&](int64_t step, std::exception_ptr error) {
          EXPECT_THROW(std::rethrow_exception(error), comm::CommError);
          failed_step = step;
          ++failures;
        });
    reporter.Submit({.report = ReportOf("step: 4"), .losses = {1}});
    EXPECT_THROW(reporter.Flush(), comm::CommError);
    EXPECT_THROW(reporter.Submit({.report = ReportOf("step: 5"), .losses = {1}}), comm::CommError);
    EXPECT_THROW(reporter.Flush(), comm::CommError);
  });
  EXPECT_EQ(failed_step, 4);
  EXPECT_EQ(failures, 1);
}

// Otherwise a job whose last report is lost would look finished.
TEST(ReporterTest, UnsentReportFailsTheFlush) {
  comm::RunThreadRanks(1, [&](Communicator& comm) {
    Reporter reporter(
        comm, {}, {}, EachAlone(comm.size()),
        [](const v1::StepReport&, const std::vector<NonfiniteGradient>&) {
          throw std::runtime_error("no room for the report");
        },
        [](int64_t, std::exception_ptr) {});
    reporter.Submit({.report = ReportOf("step: 1"), .losses = {1}});
    EXPECT_THROW(reporter.Flush(), std::runtime_error);
  });
}

}  // namespace
}  // namespace tandem::trainer
