#include "model/spec.h"

namespace forge {

std::string_view name_of(Role role) {
    constexpr std::array<std::string_view, static_cast<std::size_t>(Role::count_)> names{
        "attn_norm", "attn_q", "attn_k", "attn_v", "attn_o",
        "attn_q_bias", "attn_k_bias", "attn_v_bias", "attn_o_bias",
        "attn_q_norm", "attn_k_norm", "attn_post_norm",
        "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
        "ffn_gate_bias", "ffn_up_bias", "ffn_down_bias", "ffn_post_norm",
        "delta_qkv", "delta_z", "delta_b", "delta_a", "delta_conv", "delta_a_log", "delta_dt_bias", "delta_norm", "delta_out",
        "router", "router_scale", "expert_gate", "expert_up", "expert_down", "expert_scale",
        "shared_router", "shared_gate", "shared_up", "shared_down",
        "moe_norm", "ffn_post_norm_1", "moe_post_norm",
        "ple_gate", "ple_proj", "ple_post_norm", "layer_scale"};
    static_assert(!names.back().empty(), "every role has a name");
    return names[static_cast<std::size_t>(role)];
}

}  // namespace forge
