// SPDX-License-Identifier: Apache-2.0
// `tandem plan`: what it draws, compares, writes and refuses.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "cli/commands/plan_variants.h"
#include "cli/plan/memory_chart.h"
#include "cli/plan/timeline_chart.h"
#include "cli/terminal/display_text.h"
#include "nlohmann/json.hpp"
#include "platform/files.h"
#include "schedules/simulate/device_profile.h"
#include "tests/cli/command_fixture.h"

namespace tandem::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class PlanTest : public CommandTest {
 protected:
  // A profile file whose link is so many times slower than that of the preset cpu.
  std::string SlowProfile(double times) {
    schedules::DeviceProfile profile = *schedules::PresetProfile("cpu");
    profile.name = "slow";
    profile.link.bytes_per_second /= times;
    return File("slow.json", schedules::ProfileToJson(profile));
  }

  std::vector<std::string> Lines() const { return absl::StrSplit(console_.out, '\n'); }
};

TEST_F(PlanTest, DrawsStreamsMemoryAndWhatLimitsTheStep) {
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk) << console_.err;
  EXPECT_THAT(console_.out, ContainsRegex("device profile +cpu: "));
  EXPECT_THAT(console_.out, ContainsRegex("\ncompute +[█▓▒░·]+ +[0-9.]+ %\ngather +"));
  EXPECT_THAT(console_.out, ContainsRegex("\ncritical +[cgr ]+\n"));
  EXPECT_THAT(console_.out, HasSubstr("Memory of one rank over the step\n"));
  EXPECT_THAT(console_.out, HasSubstr("\nWhat limits this step, and what would help\n  "));
  EXPECT_THAT(console_.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(console_.err, "");
}

TEST_F(PlanTest, ChartsFillTheTerminalOrAHundredColumns) {
  const auto widest_chart_line = [this] {
    int widest = 0;
    for (const std::string& line : Lines()) {
      if (absl::StartsWith(line, "compute  ") || absl::StartsWith(line, "gather  ")) {
        widest = std::max(widest, DisplayWidth(line));
      }
    }
    return widest;
  };
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_EQ(widest_chart_line(), 100);
  console_.terminal = true;
  console_.size.columns = 61;
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_EQ(widest_chart_line(), 61);
  console_.use_color = true;
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_THAT(console_.out, HasSubstr("\x1b[36m█"));
}

TEST_F(PlanTest, FitsANarrowTerminal) {
  console_.terminal = true;
  console_.size.columns = 40;
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "prefetch=0,1,2"}), kOk);
  bool drawn = false;
  for (const std::string& line : Lines()) {
    drawn = drawn || line == "Time of a step (simulated)";
    // Rows of text are as long as they are; what is drawn, compared and said fits.
    if (drawn && !absl::StartsWith(line, "  ") && !absl::StrContains(line, ", and ") &&
        !absl::StartsWith(line, "Compared")) {
      EXPECT_LE(DisplayWidth(line), 40) << line;
    }
  }
  EXPECT_TRUE(drawn);
  console_.size.columns = 12;  // no room for a chart
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("critical  ")));
  console_.terminal = false;
  console_.use_color = true;
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("\x1b")));
}

// What the fields of a step say; in a pipe nothing is announced.
TEST_F(PlanTest, AnnouncesALongPlan) {
  const std::string file = GoodJobFile();
  for (const bool terminal : {true, false}) {
    console_.terminal = terminal;
    EXPECT_EQ(Tandem({"plan", "-f", file, "--set", "training.global_batch_size=2056"}), kOk);
    EXPECT_EQ(console_.err,
              terminal
                  ? "tandem: plan: building, checking and simulating a step of about 4112 forwards of nodes "
                    "(layers × microbatches of a rank); this may take minutes: a smaller "
                    "training.global_batch_size with --set is faster\n"
                  : "");
  }
}

TEST_F(PlanTest, AComparisonStandsBeforeThePlan) {
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "prefetch=0,1,2"}), kOk);
  EXPECT_TRUE(absl::StartsWith(console_.out, "Compared (")) << console_.out.substr(0, 200);
  EXPECT_LT(console_.out.find("as it is"), console_.out.find("device profile"));
}

TEST_F(PlanTest, SaysWhichPrefetchDistanceItChoseAndWhy) {
  const std::vector<std::string> chosen = {"plan",
                                           "-f",
                                           GoodJobFile(),
                                           "--set",
                                           "parallelism.fsdp.prefetch=auto",
                                           "--set",
                                           "resources.device=cpu"};
  EXPECT_EQ(Tandem(chosen), kOk) << console_.err;
  EXPECT_THAT(console_.out,
              ContainsRegex("Units gathered ahead of use \\(prefetch: auto\\)\n  [012], chosen of 0: "
                            "[0-9.]+ [mu]?s a step, [0-9.]+ [MG]iB; 1: "));
  std::vector<std::string> compared = chosen;
  compared.insert(compared.end(), {"--compare", "prefetch=0,1,2,auto"});
  const nlohmann::json json = Json(compared);
  const nlohmann::json& rows = json["comparison"]["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["current"], true);
  const int distance = json["prefetch"]["distance"];
  EXPECT_EQ(rows[distance]["step_seconds"], json["prediction"]["step_seconds"]);
  EXPECT_EQ(rows[3]["step_seconds"], json["prediction"]["step_seconds"]);
  EXPECT_EQ(json["prefetch"]["trials"].size(), 3u);
}

TEST_F(PlanTest, ASlowLinkIsWhatLimitsTheStep) {
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--profile", SlowProfile(100)}), kOk) << console_.err;
  EXPECT_THAT(console_.out, ContainsRegex("\n  Communication: .* is exposed; compute\n? *waits"));
  EXPECT_THAT(console_.out, HasSubstr("The link limits: the "));
  EXPECT_THAT(console_.out, ContainsRegex("\nexposed +[ '^]*\\^"));
}

TEST_F(PlanTest, ABadProfileIsOneLine) {
  const std::string bad = File("bad.json", R"({"name": "x", "compute": {"fp32": {"flops_per_second": 0}}})");
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--profile", bad}), kUsage);
  EXPECT_EQ(console_.err, "tandem: plan: --profile " + bad +
                              ": compute.fp32.flops_per_second: 0 is not allowed; allowed: a number > 0\n");
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--profile", "h1oo"}), kUsage);
  EXPECT_THAT(console_.err,
              HasSubstr("--profile h1oo: it is neither a preset (cpu, h100, h200) nor a file "));
  EXPECT_EQ(std::count(console_.err.begin(), console_.err.end(), '\n'), 1) << console_.err;
  const std::string slow =
      File("slow.json", R"({"name": "slow", "compute": {"fp32": {"flops_per_second": 1e-20}},
      "memory_bytes_per_second": 1e9, "link": {"bytes_per_second": 1e9}})");
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--profile", slow}), kUsage);
  EXPECT_THAT(console_.err, HasSubstr("plan: by the device profile slow a step takes more than 70 years; "));
  EXPECT_EQ(std::count(console_.err.begin(), console_.err.end(), '\n'), 1) << console_.err;
  EXPECT_EQ(console_.out, "");
}

TEST_F(PlanTest, ComparesTheValuesOfAField) {
  const nlohmann::json json =
      Json({"plan", "-f", GoodJobFile(), "--profile", "h100", "--compare", "prefetch=0,1,2"});
  const nlohmann::json& rows = json["comparison"]["rows"];
  EXPECT_EQ(json["comparison"]["path"], "parallelism.fsdp.prefetch");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1]["current"], true);
  EXPECT_EQ(rows[1]["step_seconds"], json["prediction"]["step_seconds"]);
  EXPECT_EQ(rows[1]["arena_bytes"], json["memory"]["arena_bytes"]);
  EXPECT_LT(rows[0]["arena_bytes"], rows[2]["arena_bytes"]);
  EXPECT_GT(rows[0]["exposed_seconds"], rows[2]["exposed_seconds"]);

  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "training.global_batch_size=4,8"}), kOk);
  EXPECT_THAT(console_.out,
              ContainsRegex("\ntraining.global_batch_size +STEP +CHANGE +TOKENS/S +EXPOSED +MEMORY"
                            "\n4 +[0-9.]+ m?s +[0-9.,]+ .* as it is\n8 +[0-9.]+ m?s +[-+][0-9.]+ % "));
  const nlohmann::json accumulation =
      Json({"plan", "-f", GoodJobFile(), "--compare", "accumulation=1,3"})["comparison"]["rows"];
  EXPECT_EQ(accumulation[0]["current"], true);
  EXPECT_EQ(accumulation[1]["tokens"], 3 * accumulation[0]["tokens"].get<int64_t>());
  const nlohmann::json written =
      Json({"plan", "-f", GoodJobFile(), "--compare", "weight_decay=0.1,1e-1,0.2"})["comparison"]["rows"];
  EXPECT_EQ(written[1]["current"], written[0]["current"]) << "the same number, written differently";
  EXPECT_NE(written[1]["current"], written[2]["current"]);
}

TEST_F(PlanTest, ShowsWhatGraphsReplay) {
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--set", "graphs.scope=attention,mlp"}), kOk)
      << console_.err;
  EXPECT_THAT(console_.out, ContainsRegex("\nGraphs of attention, mlp\n"
                                          "PASSES OF A SEGMENT +A STEP\nforward attention, forward mlp"));
  EXPECT_THAT(
      console_.out,
      ContainsRegex("\n  [0-9]+ of [0-9]+ passes of nodes are replayed: [0-9]+ segments, [0-9]+ graphs, "
                    "each is used again after 1 microbatch; 0 copies from and to rings\n  the arena is "));
  EXPECT_THAT(console_.out, Not(HasSubstr("the host issues them"))) << "a CPU has no launches";
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--set", "graphs.scope=attention,mlp", "--profile", "h200"}),
            kOk);
  EXPECT_THAT(console_.out,
              ContainsRegex("\n  the host issues them in [0-9.]+ us a step instead of [0-9.]+ [um]s; graphs "
                            "take 2.00 MiB of the device beside the arena\n"));
  EXPECT_THAT(console_.out, HasSubstr("beside the arena: context, communicators, modules, graphs\n"));
  EXPECT_GT(Json({"plan", "-f", GoodJobFile(), "--set", "graphs.scope=mlp"})["graphs"]["passes_in_graphs"],
            0);
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile()}), kOk);
  EXPECT_THAT(console_.out, Not(HasSubstr("Graphs of")));
}

// Every strategy of one job in one table: sharded state takes less than whole state, and sharded weights less
// than that.
TEST_F(PlanTest, ComparesStrategies) {
  const nlohmann::json json = Json({"plan", "-f", GoodJobFile(), "--profile", "h100", "--compare",
                                    "strategy=replicate,zero1,zero2,zero3,hsdp,hfsdp"});
  std::map<std::string, int64_t> arena;
  for (const nlohmann::json& row : json["comparison"]["rows"]) {
    arena[row["value"]] = row["arena_bytes"];
  }
  ASSERT_EQ(arena.size(), 6u);
  EXPECT_GT(arena["replicate"], arena["zero1"]);
  EXPECT_GT(arena["zero2"], arena["zero3"]);
  EXPECT_GT(arena["hsdp"], arena["hfsdp"]);
}

TEST_F(PlanTest, ComparesSchedules) {
  const nlohmann::json comparison =
      Json({"plan", "-f", GoodJobFile(), "--compare", "sequential,overlap,overlap+delay"})["comparison"];
  EXPECT_EQ(comparison["path"], "parallelism.schedule");
  const nlohmann::json& rows = comparison["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["current"], true);
  EXPECT_EQ(rows[1]["current"], false);
  EXPECT_EQ(rows[2]["value"], "overlap+delay");
  EXPECT_EQ(rows[2]["current"], false);
  EXPECT_LE(rows[0]["arena_bytes"], rows[1]["arena_bytes"]) << "two microbatches are alive at once";
}

TEST_F(PlanTest, AComparisonThatMeansNothingIsRefused) {
  const std::map<std::string, std::string> kBad = {
      {"prefetch",
       "\"prefetch\" is not a comparison; write a field and its values: prefetch=0,1,2, or schedules: "
       "sequential,overlap,overlap+delay"},
      {"", "--compare: its value is empty; give one, or omit it"},
      {"overlap+", "or schedules: sequential,overlap,overlap+delay"},
      {"prefetch=", "is not a comparison"},
      {"=1", "is not a comparison"},
      {"prefech=1", "a job has no field \"prefech\" with one value; did you mean prefetch?"},
      {"fsdp=1", "a job has no field \"fsdp\" with one value; "},
  };
  for (const auto& [text, message] : kBad) {
    EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", text}), kUsage) << text;
    EXPECT_THAT(console_.err, HasSubstr(message));
    EXPECT_EQ(std::count(console_.err.begin(), console_.err.end(), '\n'), 1) << console_.err;
  }
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "prefetch=1,7,many"}), kInvalidSpec);
  EXPECT_THAT(console_.err,
              HasSubstr("--compare: parallelism.fsdp.prefetch: 7 is not allowed; allowed: 0 to 2"));
  EXPECT_THAT(console_.err, HasSubstr("--compare: parallelism.fsdp.prefetch: many is not allowed"));
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "prefetch=1}: [\""}), kInvalidSpec);
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "strategy=zero4"}), kInvalidSpec);
  EXPECT_THAT(console_.err, HasSubstr("zero4 is not allowed; allowed: replicate, zero1"));
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--compare", "accumulation=0"}), kInvalidSpec);
  EXPECT_EQ(console_.out, "");
}

TEST_F(PlanTest, WritesATraceAndSaysWhere) {
  const std::string path = folder_ + "/trace.json";
  const nlohmann::json plan = Json({"plan", "-f", GoodJobFile(), "--trace", path});
  EXPECT_EQ(console_.err, "tandem: the trace is in " + path + "; open it at ui.perfetto.dev\n");
  const nlohmann::json trace = nlohmann::json::parse(*platform::SystemFiles().Read(path));
  size_t events = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    events += event["ph"] == "X";
    if (event["ph"] == "C") {
      for (const nlohmann::json& kind : plan["memory"]["kinds"]) {
        EXPECT_EQ(event["args"][kind["kind"].get<std::string>()], kind["bytes"]) << kind["kind"];
      }
    }
  }
  size_t worked = 0;
  for (const nlohmann::json& row : plan["prediction"]["timeline"]) {
    worked += row["end_ns"] > row["start_ns"];
  }
  EXPECT_EQ(events, worked);
  EXPECT_EQ(Tandem({"plan", "-f", GoodJobFile(), "--trace", folder_ + "/no/such/file"}), kFailed);
  EXPECT_EQ(console_.out, "");
}

TEST_F(PlanTest, AllViolationsAreShown) {
  const std::string bad = File("bad.yaml",
                               "nmae: x\nmodel: {preset: llama-tiny}\ndata: {train: /data}\n"
                               "training: {steps: 0, sequence_length: 16, micro_batch_size: 2, "
                               "global_batch_size: 7}\nprecision: {compute: fp8}\n");
  EXPECT_EQ(Tandem({"plan", "-f", bad}), kInvalidSpec);
  for (const char* expected : {"bad.yaml:1:1: nmae", "training.steps: 0 is not allowed",
                               "training.global_batch_size: 7", "precision.compute: fp8"}) {
    EXPECT_THAT(console_.err, HasSubstr(expected));
  }
  EXPECT_EQ(std::count(console_.err.begin(), console_.err.end(), '\n'), 4) << console_.err;
}

TEST_F(PlanTest, PlansEveryExampleWithoutItsDataOrWeights) {
  const std::string sizes =
      File("config.json",
           R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
               "num_attention_heads": 4, "vocab_size": 256, "rms_norm_eps": 1e-5})");
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(EXAMPLES_DIRECTORY)) {
    if (!entry.is_regular_file()) {  // tests/docs/recipes_test.py plans those of examples/recipes
      continue;
    }
    std::vector<std::string> words = {"plan", "-f", entry.path().string(), "--profile", ""};
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    if (text.str().find("hugging_face:") != std::string::npos) {  // its user has the model
      words.insert(words.end() - 2, {"--set", "model.hugging_face=" + sizes});
    }
    for (const char* profile : {"cpu", "h100", "h200"}) {
      words.back() = profile;
      EXPECT_EQ(Tandem(words), kOk) << entry.path() << console_.err;
      EXPECT_THAT(console_.out, HasSubstr(std::string("device profile         ") + profile + ": "));
    }
    ++examples;
  }
  EXPECT_GE(examples, 3);
}

TEST(PlanVariantsTest, AmbiguousKeyNeedsItsPath) {
  EXPECT_EQ(ParseComparison("micro_batch_size=1")->path, "training.micro_batch_size");
  EXPECT_EQ(ParseComparison("training.micro_batch_size=1,2,")->values, (std::vector<std::string>{"1", "2"}));
  EXPECT_FALSE(ParseComparison("micro_batch_size.x=1").ok());
}

// Two streams, 10 columns of 100 ns.
class ChartTest : public testing::Test {
 protected:
  ChartTest() {
    using schedules::Opcode;
    program_.streams = {{"compute"}, {"gather"}, {"reduce"}, {"host-to-device", true}};
    const auto add = [this](Opcode opcode, schedules::StreamId stream, std::vector<schedules::Wait> waits,
                            int64_t start, int64_t end) {
      program_.instructions.push_back({.opcode = opcode, .stream = stream, .waits = std::move(waits)});
      timeline_.instructions.push_back({start, end});
    };
    add(Opcode::kUnshard, 1, {}, 0, 200);
    add(Opcode::kForward, 0, {{0}}, 200, 500);
    add(Opcode::kBackwardInput, 0, {}, 500, 830);
    add(Opcode::kReduceGradients, 2, {{2}}, 830, 1000);
    add(Opcode::kLoadBatch, 3, {}, -700, -300);
  }
  std::vector<std::string> Render(const std::vector<StyledLine>& lines) {
    std::vector<std::string> text;
    for (const StyledLine& line : lines) {
      text.push_back(line.Render(0, false, false));
    }
    return text;
  }
  schedules::Program program_{.name = "train", .num_microbatches = 1};
  schedules::Timeline timeline_{.program = "train"};
};

TEST_F(ChartTest, AColumnShowsWhatItsStreamDidThere) {
  const std::vector<std::string> lines =
      Render(TimelineChart(program_, timeline_, /*width=*/32, /*unicode=*/false));
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "compute        ..FFFBBBb.   63 %");
  EXPECT_EQ(lines[1], "gather         GG........   20 %");
  EXPECT_EQ(lines[2], "reduce         ........RR   17 %");
  EXPECT_EQ(lines[3], "exposed        ^^      ^^   37 %");
  EXPECT_EQ(lines[4], "critical       ggccccccrr       ");
  EXPECT_EQ(lines[6], "               F forward  B backward  G gather  R reduce  small: less than half");
}

TEST_F(ChartTest, OnlyWhatCommunicatesIsExposed) {
  timeline_.instructions[0] = {100, 200};  // the host was late: until then nothing works
  const std::vector<std::string> lines =
      Render(TimelineChart(program_, timeline_, /*width=*/32, /*unicode=*/false));
  EXPECT_EQ(lines[3], "exposed         ^      ^^   27 %");
}

TEST_F(ChartTest, MemoryIsStackedBelowTheArena) {
  using schedules::BufferKind;
  schedules::MemoryCurve curve;
  const auto set = [](schedules::BytesByKind& bytes, BufferKind kind, int64_t size) {
    bytes[static_cast<int>(kind)] = size;
  };
  set(curve.persistent, BufferKind::kWeights, 100);
  set(curve.persistent, BufferKind::kGradients, 100);
  set(curve.persistent, BufferKind::kOptimizerState, 200);
  for (const int64_t ns : {0, 200, 500, 830}) {
    curve.points.push_back({.ns = ns});
    set(curve.points.back().locals, BufferKind::kGathered, 100);
  }
  set(curve.points[1].locals, BufferKind::kActivation, 300);
  set(curve.points[2].locals, BufferKind::kActivation, 300);
  set(curve.points[2].locals, BufferKind::kActivationGradient, 100);
  set(curve.points[3].locals, BufferKind::kActivation, 100);
  const std::vector<std::string> lines =
      Render(MemoryChart(curve, /*arena_bytes=*/1000, /*step_ns=*/1000, /*width=*/32, /*unicode=*/false));
  ASSERT_GE(lines.size(), 13u);
  EXPECT_EQ(lines[0], "        1000 B ---------- arena");
  EXPECT_EQ(lines[1], "                         ");
  EXPECT_EQ(lines[2], "                    ++++ ");
  EXPECT_EQ(lines[3], "                 ####### ");
  EXPECT_EQ(lines[5], "                 ########");
  EXPECT_EQ(lines[6].substr(15), "pppppppppp");
  EXPECT_EQ(lines[7].substr(15), "oooooooooo");
  EXPECT_EQ(lines[9].substr(15), "gggggggggg");
  EXPECT_EQ(lines[10], "             0 wwwwwwwwww");
  std::string legend;
  for (size_t i = 12; i < lines.size(); ++i) {
    EXPECT_LE(DisplayWidth(lines[i]), 32);
    legend += lines[i];
  }
  EXPECT_EQ(legend, "  w weights  g gradients  o optimizer  p gathered  # activations  + their gradients");
}

TEST_F(ChartTest, ChartIsLeftOutWithoutRoomOrTime) {
  EXPECT_TRUE(TimelineChart(program_, timeline_, 24, true).empty());
  EXPECT_TRUE(TimelineChart({}, {}, 100, true).empty());
  EXPECT_TRUE(MemoryChart({}, 0, 0, 100, true).empty());
}

}  // namespace
}  // namespace tandem::cli
