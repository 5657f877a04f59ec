// Appends ops to a plan; each method returns the value it makes. Mixers and
// feed-forwards are in files of their own.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace forge {

class PlanBuilder {
  public:
    explicit PlanBuilder(const BoundModel& model);

    Plan plan;

    // The whole pass; sets plan.logits.
    void build();

  private:
    // mixers.cpp
    ValueId attention(ValueId h, int index);
    ValueId gated_delta(ValueId h, int index);
    // feed_forward.cpp; x is the residual stream, h = ffn_norm(x)
    ValueId feed_forward(ValueId x, int index);
    ValueId dense(ValueId h, const LayerSpec& layer);
    ValueId experts(ValueId h, ValueId x, const LayerSpec& layer);
    // per_layer.cpp: Gemma 4
    ValueId per_layer_inputs(ValueId x);
    ValueId add_per_layer(ValueId x, int index);

    ValueId norm(ValueId x, WeightId weight, const std::string& name);
    ValueId norm_if(ValueId x, WeightId weight, const std::string& name);   // x itself when there is no weight
    ValueId matmul(ValueId x, WeightId weight, WeightId bias, const std::string& name);
    ValueId scale(ValueId x, WeightId weight, float factor, const std::string& name);
    ValueId emit(OpAttributes attributes, std::vector<ValueId> inputs, const std::string& name, std::int64_t cols,
                 RowSpace rows = RowSpace::tokens, ValueType type = ValueType::activation);

    const BoundModel& model_;
    const ModelSpec& spec_;
    int layer_ = -1;
    std::vector<ValueId> rope_tables_;
    ValueId per_layer_ = -1;
};

}  // namespace forge
