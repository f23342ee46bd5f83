// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/declared_node.h"
#include "model/node.h"

// Makers of the code of each kind of node; each kind has a file of its name. DecoderNodes has the table of
// them.
namespace tandem::model {

// The constants of ops/rope.h, shared by all layers of a decoder.
struct RotaryTables {
  ops::Constant cosines;  // [S, head_dim / 2]
  ops::Constant sines;
};

std::unique_ptr<Node> MakeEmbeddingNode(const NodeContext& context);
std::unique_ptr<Node> MakeAttentionNode(const NodeContext& context,
                                        std::shared_ptr<const RotaryTables> tables);
std::unique_ptr<Node> MakeWindowAttentionNode(const NodeContext& context,
                                              std::shared_ptr<const RotaryTables> tables);
std::unique_ptr<Node> MakeAttentionNormAfterNode(const NodeContext& context,
                                                 std::shared_ptr<const RotaryTables> tables);
std::unique_ptr<Node> MakeLatentAttentionNode(const NodeContext& context,
                                              std::shared_ptr<const RotaryTables> tables);
std::unique_ptr<Node> MakeMlpNode(const NodeContext& context);
std::unique_ptr<Node> MakeMlpNormAfterNode(const NodeContext& context);
std::unique_ptr<Node> MakeMlpSquaredReluNode(const NodeContext& context);
std::unique_ptr<Node> MakeMambaNode(const NodeContext& context);
std::unique_ptr<Node> MakeGatedDeltaNode(const NodeContext& context);
std::unique_ptr<Node> MakeRouteNode(const NodeContext& context);
std::unique_ptr<Node> MakePermuteNode(const NodeContext& context);
std::unique_ptr<Node> MakeSizesNode(const NodeContext& context);
std::unique_ptr<Node> MakeBalanceNode(const NodeContext& context);
std::unique_ptr<Node> MakeDispatchNode(const NodeContext& context);
std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context);
std::unique_ptr<Node> MakeCombineNode(const NodeContext& context);
std::unique_ptr<Node> MakeFinishNode(const NodeContext& context);
std::unique_ptr<Node> MakeHeadNode(const NodeContext& context);
std::unique_ptr<Node> MakeMainNormNode(const NodeContext& context);
std::unique_ptr<Node> MakeDepthInputNode(const NodeContext& context);
std::unique_ptr<Node> MakeDepthNormNode(const NodeContext& context);
std::unique_ptr<Node> MakeHeadOfNormedNode(const NodeContext& context);
std::unique_ptr<Node> MakeDepthHeadNode(const NodeContext& context);

}  // namespace tandem::model
