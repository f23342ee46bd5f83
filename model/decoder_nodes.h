// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/declared_node.h"
#include "model/node.h"

// One function for each class of nodes, which makes an object of it. The function is in the file of the class
// (mlp_node.cc). decoder_nodes.cc has the table that says which kind has which class.
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
