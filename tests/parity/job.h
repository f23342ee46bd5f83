// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/job_plan.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::parity {

// The jobs that these tests run: a tiny Llama on text.
struct JobOptions {
  std::string strategy = "zero3";
  int ranks = 1;
  int replicas = 1;
  int expert_parallel = 1;
  std::string chunks;                      // "fixed", "exact"; empty: what is expected of the router decides
  double rows_at_a_time = 0;               // as in the spec; 0: the default
  double most_rows = 0;                    // as in the spec
  bool separate_weight_gradients = false;  // of a sequential schedule
  int microbatches_per_rank = 1;
  int64_t steps = 3;
  int64_t layers = 2;
  int64_t hidden = 32;
  int64_t inner = 48;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t sequence_length = 16;
  int64_t micro_batch_size = 2;
  int64_t warmup_steps = 2;
  double learning_rate = 3e-3;
  double clip = 1.0;
  bool decays = true;            // the learning rate
  std::string decay = "cosine";  // if it does
  bool tied = false;
  std::string frozen = "none";         // units, joined by commas
  std::string recompute = "off";       // as in the spec
  int64_t most_logit_bytes = 0;        // of DecoderConfig; 0: the default
  std::string keep_gathered = "none";  // as in the spec
  bool stop_on_nonfinite = false;
  bool skips_spikes = false;
  bool canaries = false;
  bool balanced_routing = false;
  std::string model_type = "llama";
  bool has_biases = false;     // of all projections of an attention, of a type that may have them
  std::string pattern;         // of hybrid, nemotron_h and qwen3_next, which have other numbers of layers
  double mtp_loss_weight = 0;  // of a pattern with depths; 0: the default
  bool mtp_detach = false;     // likewise
  int64_t sliding_window = 0;  // 0: none
  std::string window_layers = "all";
  int num_experts = 0;  // of the sparse layers, with other model types
  int experts_per_token = 2;
  int64_t expert_inner = 20;                 // of qwen3_moe, patterns and deepseek; mixtral's is `inner`
  int64_t sparse_step = 1;                   // of qwen3_moe
  int64_t dense_layers = 1;                  // of deepseek, from the first
  double router_aux_loss = 0.05;             // coefficients
  std::string balance_scope = "microbatch";  // of that loss, as in the spec
  double router_z_loss = 0.01;
  double capacity_factor = 0;
  bool drop_by_position = false;  // instead of by probability
  bool pad_to_capacity = false;
  double bias_update_rate = 0;  // of deepseek_v3
  bool unused_unit = false;     // one more unit, which no node reads or writes
  bool fp64 = false;
  bool on_gpus = false;   // planned for them; RunOptions::make_backend makes what it runs on
  std::string precision;  // v1.Precision as text; empty: fp32, or fp64
  int prefetch = 1;
  bool overlap = false;
  bool delay_weight_gradients = false;  // of an overlapped schedule
  std::string graphs = "none";          // as in the spec
  bool norms = true;
  int64_t validate_every_steps = 0;
  int64_t validation_batches = 5;  // does not divide among the ranks
  std::string checkpoint_directory;
  int64_t checkpoint_every_steps = 0;
  std::string resume;
  uint64_t seed = 7;
  bool count_first_token = true;
  int64_t end_of_document = -1;  // packs documents that end with this byte; -1: one stream
  struct Source {
    std::string path;
    double weight = 0;  // 0: none is given
  };
  std::vector<Source> sources;  // in place of `text`
  bool shuffle = true;
  std::vector<std::string> validation_sets;  // files or folders; none: a tenth is held out
  std::string text;  // a file or folder; empty: one that no change of the sources changes
};

// Of two layers of eight small experts, of which a token uses two.
JobOptions SparseJob();

// Every part of a layer that the job's model has, for JobOptions::graphs.
std::string AllParts(const JobOptions& options);

// Two for the strategies that shard within replicas, "hsdp" and "hfsdp"; one for the others.
int ReplicasOf(const std::string& strategy);

plan::JobPlan MakeJob(const JobOptions& options);

using platform::TemporaryFolder;

}  // namespace tandem::parity
