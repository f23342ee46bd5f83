// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/declared_node.h"
#include "model/node.h"

// For each class of nodes, the function that makes an object of the class. It is in the file of the class
// (mlp_node.cc). The table in decoder_nodes.cc says which class each kind of node has.
namespace tandem::model {

std::unique_ptr<Node> MakeEmbeddingNode(const NodeContext& context);
std::unique_ptr<Node> MakeAttentionNode(const NodeContext& context);
std::unique_ptr<Node> MakeLatentAttentionNode(const NodeContext& context);
std::unique_ptr<Node> MakeMlpNode(const NodeContext& context);
std::unique_ptr<Node> MakeMambaNode(const NodeContext& context);
std::unique_ptr<Node> MakeGatedDeltaNode(const NodeContext& context);
std::unique_ptr<Node> MakeRouteNode(const NodeContext& context);
std::unique_ptr<Node> MakeBalanceNode(const NodeContext& context);
std::unique_ptr<Node> MakePermuteNode(const NodeContext& context);
std::unique_ptr<Node> MakeSizesNode(const NodeContext& context);
std::unique_ptr<Node> MakeDispatchNode(const NodeContext& context);
std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context);
std::unique_ptr<Node> MakeCombineNode(const NodeContext& context);
std::unique_ptr<Node> MakeFinishNode(const NodeContext& context);
std::unique_ptr<Node> MakeHeadNode(const NodeContext& context);
std::unique_ptr<Node> MakeDepthInputNode(const NodeContext& context);
std::unique_ptr<Node> MakeDepthNormNode(const NodeContext& context);

}  // namespace tandem::model
