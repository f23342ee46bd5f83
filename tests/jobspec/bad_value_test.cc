// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

// One field, whatever the others hold.
const BadSpec kFields[] = {
    {"api version", "", "api_version: tandem/v2",
     "job.yaml:4:1: api_version: tandem/v2 is not allowed; allowed: tandem/v1; omit the key, or "
     "use a version of Tandem that knows it\n"},
    {"empty name", "", "name: \"\"",
     "job.yaml:4:1: name: \"\" is not allowed; allowed: {name}; use a name like my-job-1\n"},
    {"capitals in the name", "", "name: My_Job",
     "job.yaml:4:1: name: My_Job is not allowed; allowed: {name}; use a name like my-job-1\n"},
    {"shell in the name", "", "name: ;rm -rf /",
     "job.yaml:4:1: name: ;rm -rf / is not allowed; allowed: {name}; use a name like my-job-1\n"},
    {"name with a newline", "", "name: \"a\\nb\"",
     "job.yaml:4:1: name: a\\nb is not allowed; allowed: {name}; control and invisible characters "
     "cannot be part of it\n"},
    {"right-to-left override in the name", "", "name: \"a\\u202eb\"",
     "job.yaml:4:1: name: a\\u202eb is not allowed; allowed: {name}; control and invisible characters "
     "cannot be part of it\n"},
    {"zero steps", "steps: 10", "steps: 0",
     "job.yaml:3:12: training.steps: 0 is not allowed; allowed: 1 to 1000000000; use a larger number\n"},
    {"negative steps", "steps: 10", "steps: -1",
     "job.yaml:3:12: training.steps: -1 is not allowed; allowed: 1 to 1000000000; use a larger "
     "number\n"},
    {"too many steps", "steps: 10", "steps: 1000000001",
     "job.yaml:3:12: training.steps: 1000000001 is not allowed; allowed: 1 to 1000000000; use a "
     "smaller number\n"},
    {"so many steps that a default follows them out of range", "steps: 10", "steps: 1000000000000",
     "job.yaml:3:12: training.steps: 1000000000000 is not allowed; allowed: 1 to 1000000000; use a "
     "smaller number\n"},
    {"zero ranks", "", "parallelism: {ranks: 0}",
     "job.yaml:4:15: parallelism.ranks: 0 is not allowed; allowed: 1 to 16384; use a larger number\n"},
    {"learning rate 0", "steps: 10", "steps: 10, optimizer: {learning_rate: 0}",
     "job.yaml:3:35: training.optimizer.learning_rate: 0 is not allowed; allowed: more than 0 and at "
     "most 1; use a larger number\n"},
    {"learning rate 1e308", "steps: 10", "steps: 10, optimizer: {learning_rate: 1e308}",
     "job.yaml:3:35: training.optimizer.learning_rate: 1e308 is not allowed; allowed: more than 0 "
     "and at most 1; use a smaller number\n"},
    {"beta 1", "steps: 10", "steps: 10, optimizer: {beta1: 1}",
     "job.yaml:3:35: training.optimizer.beta1: 1 is not allowed; allowed: at least 0 and less than "
     "1; use a smaller number\n"},
    {"epsilon 0", "steps: 10", "steps: 10, optimizer: {epsilon: 0}",
     "job.yaml:3:35: training.optimizer.epsilon: 0 is not allowed; allowed: 1e-30 to 0.1; use a larger "
     "number\n"},
    {"epsilon that is 0 in fp32", "steps: 10", "steps: 10, optimizer: {epsilon: 1e-50}",
     "job.yaml:3:35: training.optimizer.epsilon: 1e-50 is not allowed; allowed: 1e-30 to 0.1; use a larger "
     "number\n"},
    {"negative weight decay", "steps: 10", "steps: 10, optimizer: {weight_decay: -0.1}",
     "job.yaml:3:35: training.optimizer.weight_decay: -0.1 is not allowed; allowed: 0 to 1; use a "
     "larger number\n"},
    {"negative clipping", "steps: 10", "steps: 10, clip_grad_norm: -1",
     "job.yaml:3:23: training.clip_grad_norm: -1 is not allowed; allowed: 0 to 1e9; use a larger "
     "number\n"},
    {"validation fraction", "train: /data", "train: /data, validation_fraction: 0.6",
     "job.yaml:2:22: data.validation_fraction: 0.6 is not allowed; allowed: 0 to 0.5; use a smaller "
     "number\n"},
    {"prefetch", "", "parallelism: {fsdp: {prefetch: 3}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: 3 is not allowed; allowed: 0 to 2, or auto; use "
     "a smaller number\n"},
    {"prefetch chosen for a device that is not known", "", "parallelism: {fsdp: {prefetch: auto}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: auto is not allowed; allowed: 0 to 2 with device: auto (the "
     "default); say device: cpu or cuda, for which the step is then simulated; or `tandem plan --compare "
     "prefetch=0,1,2` says which number is best\n"},
    {"prefetch chosen for a huge step", "global_batch_size: 8}",
     "global_batch_size: 8192}\nresources: {device: cpu}\nparallelism: {fsdp: {prefetch: auto}}",
     "job.yaml:5:22: parallelism.fsdp.prefetch: auto is not allowed; allowed: 0 to 2 where nodes × "
     "microbatches of a rank are more than 4096, as here: 32768; simulating them would take long; `tandem "
     "plan --compare prefetch=0,1,2` says which number is best\n"},
    {"prefetch as a message has it", "", "parallelism: {fsdp: {prefetch: -1}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: -1 is not allowed; allowed: 0 to 2, or auto; use a larger "
     "number\n"},
    {"prefetch in words", "", "parallelism: {fsdp: {prefetch: far}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: far is not allowed; allowed: 0 to 2, or auto; write an "
     "integer in decimal digits\n"},
    {"prefetch in quotes", "", "parallelism: {fsdp: {prefetch: \"1\"}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: \"1\" is not allowed; allowed: 0 to 2, or auto; text is not "
     "expected but auto: remove the quotes\n"},
    {"prefetch misspelt", "", "parallelism: {fsdp: {prefetch: Atuo}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: Atuo is not allowed; allowed: 0 to 2, or auto; did you mean "
     "auto?\n"},
    {"prefetch of nothing", "", "parallelism: {fsdp: {prefetch: \"\"}}",
     "job.yaml:4:22: parallelism.fsdp.prefetch: \"\" is not allowed; allowed: 0 to 2, or auto; give a "
     "value\n"},
    {"keep none", "", "checkpoint: {directory: /c, keep: 0}",
     "job.yaml:4:29: checkpoint.keep: 0 is not allowed; allowed: 1 to 10000; use a larger number\n"},
};

// What is missing, and what does not fit together.
const BadSpec kRequired[] = {
    {"no data", "data: {train: /data}\n", "",
     "job.yaml: data.train: missing; allowed: {path}; name the text to train on, for instance data: "
     "{train: /usr/include}\n"},
    {"no training block",
     "training: {steps: 10, sequence_length: 16, micro_batch_size: 2, global_batch_size: 8}\n", "",
     "job.yaml: training.steps: missing; allowed: 1 to 1000000000; say how many optimizer steps to "
     "run\n"
     "job.yaml: training.sequence_length: missing; allowed: 1 to 1048576; say how many tokens a "
     "sequence has, for instance 256\n"
     "job.yaml: training.micro_batch_size: missing; allowed: 1 to 65536; say how many sequences a "
     "rank works on at once, for instance 4\n"
     "job.yaml: training.global_batch_size: missing; allowed: 1 to 16777216; say how many sequences "
     "all ranks together see in a step: a multiple of micro_batch_size × ranks\n"},
    {"no model", "model: {preset: llama-tiny}\n", "",
     "job.yaml: model: missing; allowed: a preset (llama-3-8b, llama-tiny), hugging_face, or the "
     "fields; for instance model: {preset: llama-tiny}\n"},
    {"empty model", "model: {preset: llama-tiny}", "model: {}",
     "job.yaml:1:1: model: missing; allowed: a preset (llama-3-8b, llama-tiny), hugging_face, or the "
     "fields; for instance model: {preset: llama-tiny}\n"},
    {"half a model", "model: {preset: llama-tiny}", "model: {hidden_size: 64, num_attention_heads: 4}",
     "job.yaml:1:1: model.intermediate_size: missing; allowed: 1 to 4194304; give it, or name a "
     "preset whose value is to be used\n"
     "job.yaml:1:1: model.num_hidden_layers: missing; allowed: 1 to 1024; give it, or name a preset "
     "whose value is to be used\n"
     "job.yaml:1:1: model.vocab_size: missing; allowed: 2 to 16777216; give it, or name a preset "
     "whose value is to be used\n"},
    {"empty path", "train: /data", "train: \"\"",
     "job.yaml:2:8: data.train: \"\" is not allowed; allowed: {path}; give a path, or omit "
     "the key\n"},
    {"unknown preset", "llama-tiny", "lama-tiny",
     "job.yaml:1:9: model.preset: lama-tiny is not allowed; allowed: llama-3-8b, llama-tiny; did you "
     "mean llama-tiny?\n"},
    {"preset like nothing", "llama-tiny", "gpt-5",
     "job.yaml:1:9: model.preset: gpt-5 is not allowed; allowed: llama-3-8b, llama-tiny; use one of "
     "these, or give the fields of the model\n"},
    {"two sources of a model", "preset: llama-tiny", "preset: llama-tiny, hugging_face: /m",
     "job.yaml:1:29: model.hugging_face: /m is not allowed; allowed: nothing beside model.preset; "
     "omit one of the two\n"},
    {"model type", "preset: llama-tiny", "preset: llama-tiny, model_type: mamba",
     "job.yaml:1:29: model.model_type: mamba is not allowed; allowed: llama, mixtral, qwen3_moe, "
     "deepseek_v3; not "
     "built yet: other architectures; use one of these\n"},
    {"experts of a dense model", "preset: llama-tiny", "preset: llama-tiny, moe: {num_experts: 8}",
     "job.yaml:1:29: model.moe: {...} is not allowed; allowed: nothing with model_type llama (of preset "
     "llama-tiny); omit the block, or give model_type: mixtral, qwen3_moe, or deepseek_v3\n"},
    {"experts of a model said to be dense", "preset: llama-tiny",
     "preset: llama-tiny, model_type: llama, moe: {num_experts: 8}",
     "job.yaml:1:29: model.model_type: llama is not allowed; allowed: mixtral, qwen3_moe, deepseek_v3 with a "
     "block moe; "
     "use "
     "one of these, or omit the block\n"},
    {"a sparse model without experts", "preset: llama-tiny", "preset: llama-tiny, model_type: mixtral",
     "job.yaml:1:1: model.moe.num_experts: missing; allowed: 1 to 1024; say how many experts a sparse layer "
     "has\n"
     "job.yaml:1:1: model.moe.num_experts_per_tok: missing; allowed: 1 to 1024; say how many experts each "
     "token uses\n"},
    {"more experts for a token than there are", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 5}",
     "job.yaml:1:72: model.moe.num_experts_per_tok: 5 is not allowed; allowed: 1 to num_experts 4; use a "
     "smaller number\n"},
    {"one expert a token, normalised", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, moe: {num_experts: 4, num_experts_per_tok: 1}",
     "job.yaml:1:74: model.moe.num_experts_per_tok: 1 is not allowed; allowed: 2 or more with "
     "norm_topk_prob: "
     "true (the default); divided by their sum, the probability of one expert is always 1, and the router "
     "would never learn: use more, or norm_topk_prob: false\n"},
    {"a mixtral that is none", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "moe_intermediate_size: 7, norm_topk_prob: false, decoder_sparse_step: 2}",
     "job.yaml:1:96: model.moe.moe_intermediate_size: 7 is not allowed; allowed: intermediate_size 352 with "
     "model_type mixtral; omit the key, or use model_type: qwen3_moe\n"
     "job.yaml:1:122: model.moe.norm_topk_prob: false is not allowed; allowed: true with model_type mixtral; "
     "omit the key, or use model_type: qwen3_moe\n"
     "job.yaml:1:145: model.moe.decoder_sparse_step: 2 is not allowed; allowed: 1 with model_type mixtral; "
     "omit the key, or use model_type: qwen3_moe\n"},
    {"no sparse layer", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "decoder_sparse_step: 5}",
     "job.yaml:1:98: model.moe.decoder_sparse_step: 5 is not allowed; allowed: 1 to num_hidden_layers 4 (of "
     "preset llama-tiny); no layer is sparse: use a smaller number, or model_type: llama\n"},
    {"a loss that grows with the load", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "router_aux_loss_coef: -1}",
     "job.yaml:1:96: model.moe.router_aux_loss_coef: -1 is not allowed; allowed: 0 to 100; "
     "use a larger number\n"},
    {"a scope of no loss", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "router_aux_loss_scope: global}",
     "job.yaml:1:96: model.moe.router_aux_loss_scope: global is not allowed; allowed: nothing without a "
     "router_aux_loss_coef; omit the key, or give the coefficient\n"},
    {"an unknown scope of the routers' loss", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "router_aux_loss_coef: 0.1, router_aux_loss_scope: rank}",
     "job.yaml:1:123: model.moe.router_aux_loss_scope: rank is not allowed; allowed: microbatch, sequence, "
     "global; use one of these\n"},
    {"latent attention of a model without it", "preset: llama-tiny",
     "preset: llama-tiny, latent_attention: {kv_lora_rank: 8}",
     "job.yaml:1:29: model.latent_attention: {...} is not allowed; allowed: nothing with model_type llama "
     "(of "
     "preset llama-tiny); omit the block, or give model_type: deepseek_v3\n"},
    {"a deepseek_v3 without its attention", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, moe: {num_experts: 4, num_experts_per_tok: 2}",
     "job.yaml:1:1: model.latent_attention.kv_lora_rank: missing; allowed: 1 to 1048576; say it of "
     "model_type "
     "deepseek_v3\n"
     "job.yaml:1:1: model.latent_attention.qk_nope_head_dim: missing; allowed: 0 to 4096; say it of "
     "model_type "
     "deepseek_v3\n"
     "job.yaml:1:1: model.latent_attention.qk_rope_head_dim: missing; allowed: 2 to 512; say it of "
     "model_type "
     "deepseek_v3\n"
     "job.yaml:1:1: model.latent_attention.v_head_dim: missing; allowed: 1 to 4096; say it of model_type "
     "deepseek_v3\n"},
    {"heads that do not fit latent attention", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, num_key_value_heads: 2, head_dim: 32, latent_attention: "
     "{kv_lora_rank: 8, qk_nope_head_dim: 5, qk_rope_head_dim: 4, v_head_dim: 12}, moe: {num_experts: 4, "
     "num_experts_per_tok: 2}",
     "job.yaml:1:54: model.num_key_value_heads: 2 is not allowed; allowed: num_attention_heads 4 (of preset "
     "llama-tiny) with model_type deepseek_v3; every head has keys and values of its own there: omit the "
     "key\n"
     "job.yaml:1:128: model.latent_attention.qk_nope_head_dim: 5 is not allowed; allowed: an even number; "
     "use "
     "6\n"},
    {"a head_dim beside that of latent attention", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, head_dim: 32, latent_attention: "
     "{kv_lora_rank: 8, qk_nope_head_dim: 6, qk_rope_head_dim: 4, v_head_dim: 12}, moe: {num_experts: 4, "
     "num_experts_per_tok: 2}",
     "job.yaml:1:54: model.head_dim: 32 is not allowed; allowed: qk_nope_head_dim + qk_rope_head_dim, which "
     "is "
     "10; omit the key\n"
     "job.yaml:1:146: model.latent_attention.v_head_dim: 12 is not allowed; allowed: 1 to qk_nope_head_dim + "
     "qk_rope_head_dim, which is 10; use a smaller number\n"},
    {"fields of deepseek_v3 in another mixture", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "n_shared_experts: 1, n_group: 2}",
     "job.yaml:1:98: model.moe.n_shared_experts: 1 is not allowed; allowed: nothing with model_type "
     "qwen3_moe; "
     "omit the key, or use model_type: deepseek_v3\n"
     "job.yaml:1:119: model.moe.n_group: 2 is not allowed; allowed: nothing with model_type qwen3_moe; omit "
     "the "
     "key, or use model_type: deepseek_v3\n"},
    {"heads that no GPU normalises", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, head_dim: 258, moe: {num_experts: 4, num_experts_per_tok: "
     "2}",
     "job.yaml:1:52: model.head_dim: 258 is not allowed; allowed: heads of at most 256 with model_type "
     "qwen3_moe and resources.device auto (the default); GPUs normalise no larger ones: use smaller heads, "
     "or device: "
     "cpu\n"},
    {"groups that do not divide the experts, and no sparse layer", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, latent_attention: {kv_lora_rank: 8, qk_nope_head_dim: 6, "
     "qk_rope_head_dim: 4, v_head_dim: 8}, moe: {num_experts: 8, num_experts_per_tok: 2, n_group: 3, "
     "first_k_dense_replace: 4}",
     "job.yaml:1:194: model.moe.n_group: 3 is not allowed; allowed: a divisor of num_experts 8; groups are "
     "of "
     "one size: use another number\n"
     "job.yaml:1:206: model.moe.first_k_dense_replace: 4 is not allowed; allowed: less than "
     "num_hidden_layers 4 "
     "(of preset llama-tiny); no layer is sparse: use a smaller number\n"},
    {"groups set by half", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, latent_attention: {kv_lora_rank: 8, qk_nope_head_dim: 6, "
     "qk_rope_head_dim: 4, v_head_dim: 8}, moe: {num_experts: 8, num_experts_per_tok: 4, n_group: 4}",
     "job.yaml:1:148: model.moe.topk_group: 1 is not allowed; allowed: half of num_experts_per_tok 4, or "
     "n_group "
     "4; groups are compared by their two best experts: use another number\n"},
    {"more groups than there are", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, latent_attention: {kv_lora_rank: 8, qk_nope_head_dim: 6, "
     "qk_rope_head_dim: 4, v_head_dim: 8}, moe: {num_experts: 8, num_experts_per_tok: 4, n_group: 4, "
     "topk_group: "
     "5}",
     "job.yaml:1:206: model.moe.topk_group: 5 is not allowed; allowed: 1 to n_group 4; use a smaller "
     "number\n"},
    {"a drop policy where nothing is dropped", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, drop_policy: "
     "position}",
     "job.yaml:1:96: model.moe.drop_policy: position is not allowed; allowed: nothing without a "
     "capacity_factor; "
     "omit the key, or give the factor\n"},
    {"padding to no capacity", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "pad_to_capacity: true}",
     "job.yaml:1:96: model.moe.pad_to_capacity: true is not allowed; allowed: false without a "
     "capacity_factor; omit the key: an expert that has room for all tokens would compute as many rows; or "
     "give the factor\n"},
    {"experts that drop tokens though biases even their load", "preset: llama-tiny",
     "preset: llama-tiny, model_type: deepseek_v3, latent_attention: {kv_lora_rank: 8, qk_nope_head_dim: 6, "
     "qk_rope_head_dim: 4, v_head_dim: 8}, moe: {num_experts: 8, num_experts_per_tok: 4, capacity_factor: "
     "1.5, "
     "router_bias_update_rate: 0.001}",
     "job.yaml:1:194: model.moe.capacity_factor: 1.5 is not allowed; allowed: 0 with router_bias_update_rate "
     "0.001; "
     "biases even the load without dropping tokens: omit one of the two\n"},
    {"biases of a softmax", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "router_bias_update_rate: 0.001}",
     "job.yaml:1:98: model.moe.router_bias_update_rate: 0.001 is not allowed; allowed: nothing with "
     "model_type "
     "qwen3_moe; omit the key, or use model_type: deepseek_v3\n"},
    {"small vocabulary", "preset: llama-tiny", "preset: llama-tiny, vocab_size: 255",
     "job.yaml:1:29: model.vocab_size: 255 is not allowed; allowed: at least 256 with tokenizer: "
     "bytes; a byte has 256 values: use 256\n"},
    {"a frozen unit that is not there", "steps: 10", "steps: 10, frozen: \"embedding, layers.4\"",
     "job.yaml:3:23: training.frozen: embedding, layers.4 is not allowed; allowed: none, or units joined by "
     "commas: embedding, layers.0 to the last layer, layers.0.experts where it has them, head; layers.4 is "
     "not a unit of this model, or is listed twice; its layers are 0 to 3\n"},
    {"nothing left to train", "steps: 10",
     "steps: 10, frozen: \"embedding,layers.0,layers.1,layers.2,layers.3,head\"",
     "job.yaml:3:23: training.frozen: embedding,layers.0,layers.1,layers.2,layers.3,head is not allowed; "
     "allowed: none, or units joined by commas: embedding, layers.0 to the last layer, layers.0.experts "
     "where "
     "it has them, head; nothing is left to train: take a unit out\n"},
    {"recomputation of what is no node of a layer", "steps: 10", "steps: 10, recompute: \"attention,norms\"",
     "job.yaml:3:23: training.recompute: attention,norms is not allowed; allowed: off, or joined by commas: "
     "layer, or of its nodes attention, mlp; head; norms is neither a kind of node of a layer nor head, or "
     "is listed twice\n"},
    {"recomputation of layers and more", "steps: 10", "steps: 10, recompute: \"head,layer,mlp\"",
     "job.yaml:3:23: training.recompute: head,layer,mlp is not allowed; allowed: off, or joined by commas: "
     "layer, or of its nodes attention, mlp; head; mlp is in every layer: leave it out, or layer\n"},
    {"recomputation of nothing and more", "steps: 10", "steps: 10, recompute: \"off,head\"",
     "job.yaml:3:23: training.recompute: off,head is not allowed; allowed: off, or joined by commas: layer, "
     "or "
     "of its nodes attention, mlp; head; off stands alone: leave the others out\n"},
    {"a kept unit that is not there", "", "parallelism: {fsdp: {keep_gathered: \"layers.0,layers.9\"}}",
     "job.yaml:4:22: parallelism.fsdp.keep_gathered: layers.0,layers.9 is not allowed; allowed: none, all, "
     "or units joined by commas: embedding, layers.0 to the last layer, layers.0.experts where it has them, "
     "head; layers.9 is not a unit of this model, or is listed twice; its layers are 0 to 3\n"},
    {"kept units that nobody gives up", "", "parallelism: {fsdp: {strategy: zero2, keep_gathered: all}}",
     "job.yaml:4:39: parallelism.fsdp.keep_gathered: all is not allowed; allowed: none with fsdp.strategy "
     "zero2; it keeps weights through the step anyway: omit the key, or use zero3, hsdp or hfsdp\n"},
    {"an empty name in a list", "steps: 10", "steps: 10, optimizer: {no_weight_decay: \"*.bias,,a\"}",
     "job.yaml:3:35: training.optimizer.no_weight_decay: *.bias,,a is not allowed; allowed: none, or names "
     "of parameters, in which * is any text, joined by commas; a name between the commas is empty\n"},
    {"a pattern that no parameter matches", "steps: 10",
     "steps: 10, optimizer: {no_weight_decay: \"*.bias, *layernrom.weight\"}",
     "job.yaml:3:35: training.optimizer.no_weight_decay: *.bias, *layernrom.weight is not allowed; allowed: "
     "none, or names of parameters, in which * is any text, joined by commas; no parameter of this model is "
     "named *layernrom.weight: did you mean layernorm?\n"},
    {"a pattern that is like no parameter", "steps: 10",
     "steps: 10, optimizer: {no_weight_decay: \"model.layers.4.*\"}",
     "job.yaml:3:35: training.optimizer.no_weight_decay: model.layers.4.* is not allowed; allowed: none, or "
     "names of parameters, in which * is any text, joined by commas; no parameter of this model is named "
     "model.layers.4.*: its names are like model.embed_tokens.weight and lm_head.weight (tandem describe "
     "--layout lists them)\n"},
    {"a misspelt unit", "steps: 10", "steps: 10, frozen: layer.1",
     "job.yaml:3:23: training.frozen: layer.1 is not allowed; allowed: none, or units joined by commas: "
     "embedding, layers.0 to the last layer, layers.0.experts where it has them, head; layer.1 is not a unit "
     "of this model, or is listed twice; did you mean layers.1?\n"},
    {"more experts than a job can name", "preset: llama-tiny",
     "preset: llama-tiny, num_hidden_layers: 128, model_type: qwen3_moe, moe: {num_experts: 1024, "
     "num_experts_per_tok: 2}",
     "job.yaml:1:82: model.moe.num_experts: 1024 is not allowed; allowed: at most 512 with 128 layers; use "
     "fewer experts, or fewer layers\n"},
    {"replicas by default of experts that no two ranks have", "preset: llama-tiny",
     "preset: llama-tiny, model_type: qwen3_moe, moe: {num_experts: 4, num_experts_per_tok: 2}}\n"
     "parallelism: {ranks: 4, expert: 4, fsdp: {strategy: hsdp}",
     "job.yaml:2:43: parallelism.fsdp.strategy: hsdp is not allowed; allowed: replicate, zero1, zero2, zero3 "
     "where replicas 2 (the default) are not a divisor of the 1 data-parallel ranks of an expert; use one of "
     "these, or another number of ranks, of replicas, or of ranks that share experts\n"},
    {"more experts than a report has norms of", "preset: llama-tiny",
     "preset: llama-tiny, num_hidden_layers: 32, model_type: qwen3_moe, moe: {num_experts: 1024, "
     "num_experts_per_tok: 2, decoder_sparse_step: 1}",
     "job.yaml: report.parameter_norms: true (the default) is not allowed; allowed: false with 32768 "
     "experts in all layers; a report holds the norms of at most 16384: omit them, or use fewer experts\n"},
    {"NCCL's options on CPUs", "", "parallelism: {ranks: 2, nccl: {dp_cp: {max_ctas: 4}}}",
     "job.yaml:4:25: parallelism.nccl: {...} is not allowed; allowed: nothing with resources.device auto "
     "(the "
     "default); ranks on CPUs communicate over TCP, which has no such options: omit the block, or use "
     "device: "
     "cuda\n"},
    {"NCCL's options of a group that jobs do not create", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {tp: {max_ctas: 4}}}",
     "job.yaml:5:32: parallelism.nccl.tp: the unknown key tp is not allowed; allowed: dp_cp, intra_dp_cp, "
     "inter_dp_cp, dp_cp_ag, ep, expt_dp, intra_expt_dp, expt_dp_ag, inter_dist_opt, intra_dist_opt, world; "
     "did you mean parallelism.tensor?\n"},
    {"NCCL's options of a group that this job does not have", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {inter_dp_cp: {max_ctas: 4}}}",
     "job.yaml:5:32: parallelism.nccl.inter_dp_cp: {...} is not allowed; allowed: dp_cp, dp_cp_ag, "
     "intra_dist_opt; this job has no communicator of that group: omit it, or use one of these\n"},
    {"NCCL's options of gathers where there are none", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, fsdp: {strategy: replicate}, nccl: {dp_cp_ag: "
     "{high_priority: true}}}",
     "job.yaml:5:61: parallelism.nccl.dp_cp_ag: {...} is not allowed; allowed: dp_cp, intra_dist_opt; this "
     "job "
     "has no communicator of that group: omit it, or use one of these\n"},
    {"thread blocks that do not fit beside each other", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {dp_cp: {max_ctas: 60}, dp_cp_ag: {max_ctas: "
     "9}, "
     "intra_dist_opt: {cga_cluster_size: 2}}}",
     "job.yaml:5:25: parallelism.nccl: up to 133 thread blocks at once is not allowed; allowed: at most 132 "
     "over "
     "all groups, the multiprocessors of a GPU; they could wait for each other for ever: lower max_ctas "
     "(min_ctas "
     "or cga_cluster_size without it count as 64)\n"},
    {"thread blocks that are more than there may be", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {dp_cp: {max_ctas: 4}, dp_cp_ag: {min_ctas: "
     "8}}}",
     "job.yaml:5:65: parallelism.nccl.dp_cp_ag.min_ctas: 8 is not allowed; allowed: at most max_ctas 4; a "
     "group "
     "of gathers takes what is left out from the group that it is a clone of\n"},
    {"options of NCCL out of bounds", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {dp_cp: {max_ctas: 65, net_name: tcp}, "
     "intra_dist_opt: {cga_cluster_size: 9}}}",
     "job.yaml:5:40: parallelism.nccl.dp_cp.max_ctas: 65 is not allowed; allowed: 1 to 64; use a smaller "
     "number\n"
     "job.yaml:5:87: parallelism.nccl.intra_dist_opt.cga_cluster_size: 9 is not allowed; allowed: 0 to 8; "
     "use a "
     "smaller number\n"},
    {"a network that NCCL does not know", "",
     "resources: {device: cuda}\nparallelism: {ranks: 2, nccl: {dp_cp: {net_name: tcp}}}",
     "job.yaml:5:40: parallelism.nccl.dp_cp.net_name: tcp is not allowed; allowed: IB, socket; use one of "
     "these\n"},
    {"a wildcard that is none", "steps: 10",
     "steps: 10, optimizer: {no_weight_decay: \"*.bias,layers.[01].*\"}",
     "job.yaml:3:35: training.optimizer.no_weight_decay: *.bias,layers.[01].* is not allowed; allowed: none, "
     "or names of parameters, in which * is any text, joined by commas; layers.[01].* has a wildcard other "
     "than *\n"},
    {"replicas of a strategy that has none", "", "parallelism: {ranks: 4, replicas: 2}",
     "job.yaml:4:25: parallelism.replicas: 2 is not allowed; allowed: 1 with fsdp.strategy zero3; omit "
     "the key, or use strategy: hsdp, or hfsdp\n"},
    {"one replica for a strategy of several", "",
     "parallelism: {ranks: 4, replicas: 1, fsdp: {strategy: hsdp}}",
     "job.yaml:4:25: parallelism.replicas: 1 is not allowed; allowed: 2 or more with fsdp.strategy hsdp; "
     "omit the key for 2, or use strategy: zero3\n"},
    {"default replicas that do not divide the ranks", "", "parallelism: {ranks: 1, fsdp: {strategy: hsdp}}",
     "job.yaml:4:32: parallelism.fsdp.strategy: hsdp is not allowed; allowed: replicate, zero1, zero2, "
     "zero3 with ranks 1, which 2 replicas (the default) do not divide; give replicas, or use another "
     "number of ranks\n"},
    {"replicas that do not divide the ranks", "",
     "parallelism: {ranks: 4, replicas: 3, fsdp: {strategy: hfsdp}}",
     "job.yaml:4:25: parallelism.replicas: 3 is not allowed; allowed: a divisor of ranks 4; every copy "
     "is sharded over as many ranks\n"},
    {"heads that share unevenly", "preset: llama-tiny", "preset: llama-tiny, num_key_value_heads: 3",
     "job.yaml:1:29: model.num_key_value_heads: 3 is not allowed; allowed: a divisor of "
     "num_attention_heads 4 (of preset llama-tiny); use one of 1, 2, 4\n"},
    {"heads that do not divide", "preset: llama-tiny", "preset: llama-tiny, num_attention_heads: 3",
     "job.yaml:1:29: model.num_attention_heads: 3 is not allowed; allowed: a divisor of hidden_size "
     "128 (of preset llama-tiny); use one, or give head_dim\n"},
    {"width that the preset's heads do not divide", "preset: llama-tiny",
     "preset: llama-tiny, hidden_size: 130",
     "job.yaml:1:29: model.hidden_size: 130 is not allowed; allowed: a multiple of num_attention_heads "
     "4 (of preset llama-tiny); the nearest are 128 and 132; or give head_dim\n"},
    {"heads that the preset's do not divide", "preset: llama-tiny",
     "preset: llama-3-8b, num_attention_heads: 4",
     "job.yaml:1:29: model.num_attention_heads: 4 is not allowed; allowed: a multiple of "
     "num_key_value_heads 8 (of preset llama-3-8b); the nearest is 8; or give num_key_value_heads\n"},
    {"odd head", "preset: llama-tiny", "preset: llama-tiny, head_dim: 31",
     "job.yaml:1:29: model.head_dim: 31 is not allowed; allowed: an even number from 2 to 4096; "
     "rotary embedding turns pairs of elements: use 32\n"},
    {"odd derived head", "preset: llama-tiny", "preset: llama-tiny, hidden_size: 20",
     "job.yaml:1:29: model.hidden_size: 20 is not allowed; allowed: heads of an even size from "
     "2 to 4096; hidden_size 20 / 4 heads (of preset llama-tiny) is 5: use another number, or give "
     "head_dim\n"},
    {"zero heads", "preset: llama-tiny", "preset: llama-tiny, num_attention_heads: 0",
     "job.yaml:1:29: model.num_attention_heads: 0 is not allowed; allowed: 1 to 1024; use a larger "
     "number\n"},
    {"sequence longer than the model's", "preset: llama-tiny",
     "preset: llama-tiny, max_position_embeddings: 15",
     "job.yaml:3:23: training.sequence_length: 16 is not allowed; allowed: at most "
     "model.max_position_embeddings 15; use shorter sequences\n"},
    {"sequence longer than the preset's",
     "preset: llama-tiny}\ndata: {train: /data}\ntraining: {steps: 10, sequence_length: 16",
     "preset: llama-3-8b}\ndata: {train: /data}\ntraining: {steps: 10, sequence_length: 9000",
     "job.yaml:3:23: training.sequence_length: 9000 is not allowed; allowed: at most "
     "model.max_position_embeddings 8192 (of preset llama-3-8b); use shorter sequences\n"},
    {"both validations", "train: /data", "train: /data, validation: /v, validation_fraction: 0.1",
     "job.yaml:2:38: data.validation_fraction: 0.1 is not allowed; allowed: nothing beside "
     "data.validation; omit one of the two\n"},
    {"a token that ends documents of a stream", "train: /data", "train: /data, end_of_document: 0",
     "job.yaml:2:22: data.end_of_document: 0 is not allowed; allowed: nothing with documents: stream (the "
     "default); use documents: packed, or omit the key\n"},
    {"a token that is no byte", "train: /data", "train: /data, documents: packed, end_of_document: 256",
     "job.yaml:2:41: data.end_of_document: 256 is not allowed; allowed: 0 to 255; use a smaller number\n"},
    {"validation on nothing", "train: /data}\ntraining: {",
     "train: /data, validation_fraction: 0}\n"
     "training: {validate_every_steps: 5, ",
     "job.yaml:3:12: training.validate_every_steps: 5 is not allowed; allowed: 0 where no data is "
     "held out; give data.validation, or a validation_fraction above 0\n"},
    {"batch that does not divide", "global_batch_size: 8", "global_batch_size: 7",
     "job.yaml:3:65: training.global_batch_size: 7 is not allowed; allowed: a multiple of 2 "
     "(micro_batch_size 2 × 1 rank); the nearest are 6 and 8\n"},
    {"batch smaller than a microbatch", "global_batch_size: 8", "global_batch_size: 1",
     "job.yaml:3:65: training.global_batch_size: 1 is not allowed; allowed: a multiple of 2 "
     "(micro_batch_size 2 × 1 rank); the nearest is 2\n"},
    {"batch that does not divide among ranks", "", "parallelism: {ranks: 3}",
     "job.yaml:3:65: training.global_batch_size: 8 is not allowed; allowed: a multiple of 6 "
     "(micro_batch_size 2 × 3 ranks); the nearest are 6 and 12\n"},
    {"too many microbatches", "global_batch_size: 8", "global_batch_size: 16777216",
     "job.yaml:3:65: training.global_batch_size: 16777216 is not allowed; allowed: at most 32768 "
     "(16384 microbatches of a rank, with 4 layers); use a larger micro_batch_size, or more ranks\n"},
    {"too many microbatches of a validation", "steps: 10,", "steps: 10, validation_batches: 16385,",
     "job.yaml:3:23: training.validation_batches: 16385 is not allowed; allowed: at most 16384 "
     "(16384 microbatches of a rank, with 4 layers); use fewer, or a larger micro_batch_size\n"},
    {"too many tokens at once", "sequence_length: 16, micro_batch_size: 2, global_batch_size: 8",
     "sequence_length: 1048576, micro_batch_size: 8, global_batch_size: 8",
     "job.yaml:3:49: training.micro_batch_size: 8 is not allowed; allowed: at most 4 with "
     "sequence_length 1048576 (4194304 tokens a microbatch); use a smaller number: global_batch_size "
     "says how much a step sees\n"},
    {"too many tokens in all",
     "training: {steps: 10, sequence_length: 16, micro_batch_size: 2, global_batch_size: 8}",
     "training: {steps: 1000000000, sequence_length: 1048576, micro_batch_size: 4, "
     "global_batch_size: 16384}",
     "job.yaml:3:12: training.steps: 1000000000 is not allowed; allowed: at most 268435456 with "
     "17179869184 tokens a step; use fewer\n"},
    {"warm-up longer than the job", "steps: 10", "steps: 10, schedule: {warmup_steps: 11}",
     "job.yaml:3:34: training.schedule.warmup_steps: 11 is not allowed; allowed: 0 to training.steps "
     "10; use fewer, or more steps\n"},
    {"minimum above the learning rate", "steps: 10",
     "steps: 10, schedule: {decay: cosine, min_learning_rate: 0.1}",
     "job.yaml:3:49: training.schedule.min_learning_rate: 0.1 is not allowed; allowed: 0 to "
     "training.optimizer.learning_rate 3e-4 (the default); use a smaller number\n"},
    {"minimum without decay", "steps: 10", "steps: 10, schedule: {min_learning_rate: 1e-5}",
     "job.yaml:3:34: training.schedule.min_learning_rate: 1e-5 is not allowed; allowed: 0 with "
     "decay: constant (the default); use decay: cosine, or leave it out\n"},
    {"order with an unknown token", "", "parallelism: {order: tp-xp-dp}",
     "job.yaml:4:15: parallelism.order: tp-xp-dp is not allowed; allowed: tp, cp, ep, dp and pp, "
     "each at most once, joined by -; xp is none of them\n"},
    {"order with a token twice", "", "parallelism: {order: tp-dp-tp}",
     "job.yaml:4:15: parallelism.order: tp-dp-tp is not allowed; allowed: tp, cp, ep, dp and pp, "
     "each at most once, joined by -; tp is listed twice\n"},
    {"order without dp", "", "parallelism: {ranks: 2, order: tp-pp}",
     "job.yaml:4:25: parallelism.order: tp-pp is not allowed; allowed: tp, cp, ep, dp and pp, each "
     "at most once, joined by -; dp is missing, and there are 2 ranks along it\n"},
    {"overlap without its schedule", "", "parallelism: {overlap: {delay_weight_gradients: true}}",
     "job.yaml:4:15: parallelism.overlap: {...} is not allowed; allowed: nothing with schedule: sequential "
     "(the default); omit the block, or use schedule: overlap\n"},
    {"overlap with another schedule", "", "parallelism: {schedule: sequential, overlap: {}}",
     "job.yaml:4:37: parallelism.overlap: {...} is not allowed; allowed: nothing with schedule: sequential; "
     "omit the block, or use schedule: overlap\n"},
    {"experts that the ranks which share them do not divide", "preset: llama-tiny}",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 6, num_experts_per_tok: 2}}\nparallelism: "
     "{ranks: 4, expert: 4}",
     "job.yaml:2:25: parallelism.expert: 4 is not allowed; allowed: a divisor of num_experts 6; every rank "
     "has as "
     "many experts: use another number of them, or of ranks that share them\n"},
    {"a negative capacity", "preset: llama-tiny",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "capacity_factor: -1}",
     "job.yaml:1:96: model.moe.capacity_factor: -1 is not allowed; allowed: 0 to 1024; use a larger "
     "number\n"},
    {"an exchange between experts that nobody shares", "", "parallelism: {dispatch: {chunks: exact}}",
     "job.yaml:4:15: parallelism.dispatch: {...} is not allowed; allowed: nothing with expert: 1 (the "
     "default); "
     "no ranks share experts: omit the block, or give expert\n"},
    {"separate weight gradients of an overlap", "preset: llama-tiny}",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2}}\nparallelism: "
     "{ranks: 2, expert: 2, schedule: overlap, dispatch: {separate_weight_gradients: true}}",
     "job.yaml:2:66: parallelism.dispatch.separate_weight_gradients: true is not allowed; allowed: false "
     "with "
     "schedule: overlap; the overlap has other work for that time: omit the key, or use schedule: "
     "sequential\n"},
    {"rows at a time of experts that compute all at once", "preset: llama-tiny}",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2, "
     "capacity_factor: "
     "1.25, pad_to_capacity: true}}\nparallelism: {ranks: 2, expert: 2, dispatch: {rows_at_a_time: 2}}",
     "job.yaml:2:47: parallelism.dispatch.rows_at_a_time: 2 is not allowed; allowed: nothing with "
     "pad_to_capacity: true; padded rows are computed all at once, and are no more than the factor "
     "says: omit one of the two\n"},
    {"fewer rows at a time than are expected", "preset: llama-tiny}",
     "preset: llama-tiny, model_type: mixtral, moe: {num_experts: 4, num_experts_per_tok: 2}}\nparallelism: "
     "{ranks: 2, expert: 2, dispatch: {rows_at_a_time: 0.5, chunks: some}}",
     "job.yaml:2:47: parallelism.dispatch.rows_at_a_time: 0.5 is not allowed; allowed: 1 to 1024; use a "
     "larger "
     "number\n"
     "job.yaml:2:68: parallelism.dispatch.chunks: some is not allowed; allowed: auto, fixed, exact; use one "
     "of "
     "these\n"},
    {"checkpoints without a folder", "", "checkpoint: {every_steps: 5}",
     "job.yaml:4:1: checkpoint.directory: missing; allowed: absolute path of a folder; name the "
     "folder of the checkpoints, or omit the block\n"},
    {"empty resume", "", "checkpoint: {directory: /c, resume: \"\"}",
     "job.yaml:4:29: checkpoint.resume: \"\" is not allowed; allowed: newest, none, or the absolute path of "
     "one checkpoint; give a path, or omit the key\n"},
};

// What a later version will do.
const BadSpec kLater[] = {
    {"tensor parallelism", "", "parallelism: {ranks: 4, tensor: 4}",
     "job.yaml:4:25: parallelism.tensor: 4 is not allowed; allowed: 1; not built yet: tensor "
     "parallelism; use 1\n"},
    {"tensor parallelism, and one rank by default", "", "parallelism: {tensor: 2}",
     "job.yaml:4:15: parallelism.tensor: 2 is not allowed; allowed: 1; not built yet: tensor "
     "parallelism; use 1\n"},
    {"context parallelism", "", "parallelism: {context: 2, ranks: 2}",
     "job.yaml:4:15: parallelism.context: 2 is not allowed; allowed: 1; not built yet: context "
     "parallelism; use 1\n"},
    {"pipeline parallelism", "", "parallelism: {pipeline: 2, ranks: 2}",
     "job.yaml:4:15: parallelism.pipeline: 2 is not allowed; allowed: 1; not built yet: pipeline "
     "parallelism; use 1\n"},
    {"expert parallelism of a dense model", "", "parallelism: {expert: 2, ranks: 2}",
     "job.yaml:4:15: parallelism.expert: 2 is not allowed; allowed: 1 with model_type llama (of preset "
     "llama-tiny); it has no experts to share: omit the key, or use model_type: mixtral, qwen3_moe or "
     "deepseek_v3\n"},
    {"expert tensor parallelism", "", "parallelism: {expert_tensor: 2}",
     "job.yaml:4:15: parallelism.expert_tensor: 2 is not allowed; allowed: 1; not built yet: tensor "
     "parallelism of experts; use 1\n"},
    {"fp8", "", "precision: {compute: fp8}",
     "job.yaml:4:13: precision.compute: fp8 is not allowed; allowed: fp32, fp64, bf16; not built yet: 8 "
     "bits; "
     "use bf16\n"},
    {"gradients of fp32 in bf16", "", "precision: {compute: fp32, transport: bf16}",
     "job.yaml:4:28: precision.transport: bf16 is not allowed; allowed: fp32; gradients are computed in "
     "fp32: "
     "use one of these, or leave the key out\n"},
    {"gradients of bf16 in fp64", "", "precision: {compute: bf16, transport: fp64}",
     "job.yaml:4:28: precision.transport: fp64 is not allowed; allowed: bf16, fp32; gradients are computed "
     "in "
     "bf16: use one of these, or leave the key out\n"},
    {"gradients of a head in fp32 in bf16", "",
     "precision: {compute: bf16, head: {compute: fp32, transport: bf16}}",
     "job.yaml:4:50: precision.head.transport: bf16 is not allowed; allowed: fp32; gradients are computed in "
     "fp32: use one of these, or leave the key out\n"},
    {"fp64 of one unit", "", "precision: {compute: bf16, embedding: {compute: fp64}}",
     "job.yaml:4:40: precision.embedding.compute: fp64 is not allowed; allowed: fp32, bf16; fp64 is for "
     "whole "
     "models: use one of these, or leave the key out\n"},
    {"one unit of a fp64 model", "", "precision: {compute: fp64, head: {compute: bf16}}",
     "job.yaml:4:35: precision.head.compute: bf16 is not allowed; allowed: fp64; fp64 is for whole models: "
     "use "
     "one of these, or leave the key out\n"},
    {"no ranks on any worker", "", "resources: {ranks_per_worker: 0}",
     "job.yaml:4:13: resources.ranks_per_worker: 0 is not allowed; allowed: 1 to 16384; use a larger "
     "number\n"},
    {"memory", "", "resources: {memory_bytes: 64MiB}",
     "job.yaml:4:13: resources.memory_bytes: 67108864 is not allowed; allowed: nothing; not built "
     "yet: placement by memory; omit the key and compare tandem plan with the machine\n"},
    {"hybrid", "preset: llama-tiny", "preset: llama-tiny, hybrid_pattern: M*M*",
     "job.yaml:1:29: model.hybrid_pattern: M*M* is not allowed; allowed: nothing; not built yet: "
     "hybrid models; omit the key for a Llama decoder\n"},
    {"multi-token prediction", "preset: llama-tiny", "preset: llama-tiny, num_nextn_predict_layers: 1",
     "job.yaml:1:29: model.num_nextn_predict_layers: 1 is not allowed; allowed: nothing; not built "
     "yet: multi-token prediction; omit the key\n"},
    {"recovery", "", "recovery: {max_restarts: 3}",
     "job.yaml:4:1: recovery: {...} is not allowed; allowed: nothing; not built yet: restarts after "
     "a failure; omit the block and submit again with resume\n"},
    {"priority", "", "priority: 3",
     "job.yaml:4:1: priority: 3 is not allowed; allowed: nothing; not built yet: priorities between "
     "jobs; omit the key\n"},
    {"tokenizer", "train: /data", "train: /data, tokenizer: gpt2",
     "job.yaml:2:22: data.tokenizer: gpt2 is not allowed; allowed: bytes; not built yet: other "
     "tokenizers; use bytes\n"},
};

TEST(BadSpecTest, FieldsAreRefusedWithTheirRange) { ExpectMessages(kFields); }

TEST(BadSpecTest, MissingFieldsAndFieldsThatDoNotFitAreRefused) { ExpectMessages(kRequired); }

TEST(BadSpecTest, WhatIsNotBuiltIsRefusedByName) { ExpectMessages(kLater); }

}  // namespace
}  // namespace tandem::jobspec
