// What can be chosen of a launch: the same ways, in the same buckets of rows, as binding takes.
#include "binder.h"
#include "kernels/gpu/ways.h"

namespace forge::gpu {

// Nothing is joined with this launch.
bool Binder::stands_alone(std::size_t index) const { return !(index > 0 && joins_next(index - 1)) && !joins_next(index); }

std::vector<LaunchVariants> Binder::variants(std::size_t index) {
    launch_ = &program_.launches[index];
    std::vector<LaunchVariants> buckets;
    const auto add = [&](int rows, const std::vector<Way>& ways, const char* apart = nullptr) {
        std::vector<std::string> names;
        for (const Way& w : ways) names.push_back(w.name);
        if (apart) names.emplace_back(apart);
        if (names.size() > 1) buckets.push_back({rows, std::move(names)});
    };
    if (launch_->kernel == "matvec" && program_.max_rows <= 8) {   // a prompt has few such products
        MatvecShape s = matmul_shape();
        for_each_bucket([&](int rows) {
            s.x_rows = rows;
            s.beside = rows_beside(s);
            const bool alone = stands_alone(index) && !has("untaken"), fused = (s.norm || s.gated_head > 0) && norm_fits(common_, s);
            add(rows, matvec_ways(common_, fused ? s : without_norm(s), alone), fused && alone ? kNormedBefore : nullptr);
        });
    } else if (launch_->kernel == "gemm") {
        const MatvecShape s = matmul_shape();
        if (matmul2d_fits(common_, s)) add(program_.max_rows, gemm_ways(common_, s, program_.max_rows));
        else for_each_tile_bucket([&](int rows) { add(rows, gemm_ways(common_, s, rows)); });
    } else if (launch_->kernel == "expert_gemm") {
        add(program_.max_rows, expert_gemm_ways(common_, expert_shape()));
    } else if (launch_->kernel == "attention_decode") {
        AttentionShape s = merges() ? merged_shape() : prepares() ? prepare_shape() : attention_shape();
        s.fused = true;
        if (prepares()) add(1, attention_decode_ways(common_, s), kPreparedBefore);
        s.fused = false;
        if (!prepares() || program_.max_rows > 1) add(program_.max_rows, attention_decode_ways(common_, s));
        if (!prepares() && !buckets.empty()) buckets.back().usual = 1;
    } else if (launch_->kernel == "attention_prefill") {
        add(program_.max_rows, attention_prefill_ways(common_, attention_shape()));
    }
    return buckets;
}

}  // namespace forge::gpu
