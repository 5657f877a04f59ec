#include "kernels/gpu/ways.h"

#include <algorithm>
#include <mutex>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

struct Forms {
    std::mutex mutex;
    std::vector<GemmForm> all;
};
Forms& forms() {
    static Forms one;
    return one;
}

std::string name_of(const TensorTile& t) { return fmt::format("tile {}x{}", t.rows, t.columns); }
std::string name_of(const SimdTile& t) { return fmt::format("tile {}x{}x{}{}", t.rows, t.columns, t.depth, t.ahead ? " ahead" : ""); }
std::string name_of(const SimdFlashTile& t) { return fmt::format("{} x {} rows, {} keys{}", t.simdgroups, t.rows, t.keys, t.shared ? " shared" : ""); }

// Those that differ from the default in size, and those that differ in how a tile of its size is filled.
std::vector<SimdTile> tiles_near(const Common& c, const MatvecShape& s, const SimdTile& standard) {
    std::vector<SimdTile> tiles{standard};
    for (const SimdTile& t : simd_tiles(c, s)) {
        const bool size = t.rows == standard.rows && t.columns == standard.columns, filling = t.depth == standard.depth && t.ahead == standard.ahead;
        if (size == filling || t.rows > 2 * standard.rows) continue;
        if (size && t.depth != standard.depth && t.ahead != standard.ahead) continue;
        tiles.push_back(t);
    }
    return tiles;
}

}  // namespace

void add_gemm_form(const GemmForm& form) {
    std::lock_guard lock(forms().mutex);
    std::erase_if(forms().all, [&](const GemmForm& f) { return f.name == form.name; });
    forms().all.push_back(form);
}

std::vector<Way> matvec_ways(const Common& c, const MatvecShape& s, bool alone) {
    std::vector<Way> ways;
    for (const MatvecTile& t : matvec_tiles(c, s, alone)) ways.push_back({name_of(t), [=] { return matvec(c, s, t); }});
    return ways;
}

std::vector<Way> gemm_ways(const Common& c, const MatvecShape& s, int rows) {
    std::vector<Way> ways;
    if (matmul2d_fits(c, s)) {
        const SimdTile first = matmul2d_tiles(c, s)[0], other = choose_simd_tile(c, s, rows);
        ways.push_back({"matmul2d " + name_of(first), [=] { return gemm_matmul2d(c, s, first); }});
        ways.push_back({name_of(other), [=] { return gemm_simd(c, s, other); }});
    } else if (simd_fits(c, s)) {
        for (const SimdTile& t : tiles_near(c, s, choose_simd_tile(c, s, rows))) ways.push_back({name_of(t), [=] { return gemm_simd(c, s, t); }});
    } else if (tensor_fits(c, s)) {
        const TensorTile standard = choose_tensor_tile(c, s, rows);
        ways.push_back({name_of(standard), [=] { return gemm_tensor(c, s, standard); }});
        for (const TensorTile& t : tensor_tiles(c, s))
            if (!(t == standard)) ways.push_back({name_of(t), [=] { return gemm_tensor(c, s, t); }});
    } else {
        ways.push_back({"tile 32x64", [=] { return gemm(c, s); }});
    }
    std::lock_guard lock(forms().mutex);
    for (const GemmForm& f : forms().all)
        if (f.fits(c, s)) ways.push_back({f.name, [=] { return f.make(c, s); }});
    return ways;
}

std::vector<Way> expert_gemm_ways(const Common& c, const ExpertShape& s) {
    const MatvecShape matrix = one_matrix(s);
    std::vector<Way> ways;
    if (simd_fits(c, matrix)) {
        for (const SimdTile& t : tiles_near(c, matrix, choose_simd_tile(c, matrix, 32))) ways.push_back({name_of(t), [=] { return expert_gemm_simd(c, s, t); }});
    } else if (tensor_fits(c, matrix)) {
        const std::vector<TensorTile> tiles = tensor_tiles(c, matrix);
        for (const std::size_t i : {1, 0, 2}) ways.push_back({name_of(tiles[i]), [=, t = tiles[i]] { return expert_gemm_tensor(c, s, t); }});
    } else {
        ways.push_back({"tile 32x64", [=] { return expert_gemm(c, s); }});
    }
    return ways;
}

std::vector<Way> attention_decode_ways(const Common& c, const AttentionShape& s) {
    std::vector<Way> ways;
    for (const int heads : attention_packings(c, s)) {
        if (!ways.empty() && attention_decode(c, s, heads).threadgroup_bytes() > static_cast<std::size_t>(c.limits.threadgroup_bytes)) continue;
        ways.push_back({fmt::format("heads {}", heads), [=] { return attention_decode(c, s, heads); }});
    }
    return ways;
}

// Blocks of as many keys as the default's: the online softmax rounds at their ends.
std::vector<Way> attention_prefill_ways(const Common& c, const AttentionShape& s) {
    if (flash_fits(c, s)) return {{"flash", [=] { return attention_flash(c, s); }}};
    if (!simd_flash_fits(c, s)) return {{"plain", [=] { return attention_prefill(c, s); }}};
    std::vector<Way> ways;
    const std::vector<SimdFlashTile> tiles = simd_flash_tiles(c, s);
    for (const SimdFlashTile& t : tiles) {
        const int changes = (t.simdgroups != tiles[0].simdgroups) + (t.rows != tiles[0].rows) + (t.shared != tiles[0].shared);
        if (t.keys == tiles[0].keys && changes <= 1) ways.push_back({name_of(t), [=] { return attention_simd(c, s, t); }});
    }
    return ways;
}

}  // namespace forge::gpu
