// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/declared_node.h"
#include "model/node.h"

// Makers of the code of nodes, one for each class of nodes, in the file of its kind. DecoderNodes has the
// table of kinds.
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
