#pragma once

#include <memory>

#include "model/config.h"
#include "model/node.h"

// The kinds of nodes of a decoder, each in a file of its name. The lists of a NodeCall are those of
// outline.cc.
namespace tandem::model {

struct RotaryTables;  // attention_node.cc

std::unique_ptr<Node> MakeEmbeddingNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                        const ops::Operations& ops);

// The layers share one set of tables.
std::shared_ptr<const RotaryTables> MakeRotaryTables(const DecoderConfig& config, BatchShape batch,
                                                     ComputeType type, const ops::Operations& ops);
std::unique_ptr<Node> MakeAttentionNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                        std::shared_ptr<const RotaryTables> tables,
                                        const ops::Operations& ops);

std::unique_ptr<Node> MakeMlpNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                  const ops::Operations& ops);

std::unique_ptr<Node> MakeHeadNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                   const ops::Operations& ops);

}  // namespace tandem::model
