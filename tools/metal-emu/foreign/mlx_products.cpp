#include <algorithm>
#include <cmath>
#include <cstring>

#include "foreign/mlx.h"

namespace metal_emu::foreign {
namespace {

using half = _Float16;
std::uint32_t u32(long v) { return static_cast<std::uint32_t>(v); }
std::size_t size(long v) { return static_cast<std::size_t>(v); }

std::uint16_t bits_of(float v, bool bfloat) {
    std::uint16_t out;
    if (bfloat) {
        std::uint32_t u;
        std::memcpy(&u, &v, 4);
        out = static_cast<std::uint16_t>(u >> 16);
    } else {
        const half h = static_cast<half>(v);
        std::memcpy(&out, &h, 2);
    }
    return out;
}
float value_of(std::uint16_t bits, bool bfloat) {
    if (bfloat) {
        const std::uint32_t u = static_cast<std::uint32_t>(bits) << 16;
        float v;
        std::memcpy(&v, &u, 4);
        return v;
    }
    half h;
    std::memcpy(&h, &bits, 2);
    return static_cast<float>(h);
}
// Rounds the values, and gives them in 16 bits.
std::vector<std::uint16_t> round(std::vector<float>& values, bool bfloat) {
    std::vector<std::uint16_t> out;
    for (float& v : values) {
        out.push_back(bits_of(v, bfloat));
        v = value_of(out.back(), bfloat);
    }
    return out;
}

void affine(Harness& h, const std::string& kernel) {
    const bool bfloat = kernel == "qmv_bf", matrix = kernel == "qmm_t";
    const long columns = 512, n = kernel == "qmv_fast" || matrix ? 64 : 37, rows = matrix ? 40 : 2;
    std::vector<std::uint32_t> w(size(n * columns / 8));
    for (std::uint32_t& x : w) x = h.bits();
    auto scales = h.random(size(n * columns / 64), 0.1f), biases = h.random(size(n * columns / 64), 0.5f), x = h.random(size(columns * rows));
    const auto s16 = round(scales, bfloat), b16 = round(biases, bfloat), x16 = round(x, bfloat);
    std::vector<std::uint16_t> y(size(n * rows));
    std::vector<double> wanted;
    for (long r = 0; r < rows; r++)
        for (long o = 0; o < n; o++) {
            double sum = 0;
            for (long k = 0; k < columns; k++) {
                const long at = o * columns + k;
                sum += (((w[size(at / 8)] >> (4 * (k % 8))) & 15) * static_cast<double>(scales[size(at / 64)]) + static_cast<double>(biases[size(at / 64)])) *
                       static_cast<double>(x[size(r * columns + k)]);
            }
            wanted.push_back(sum);
        }
    const int k = static_cast<int>(columns), out_rows = static_cast<int>(n), m = static_cast<int>(rows), none = 0;
    const std::vector<int> no_shape(4);
    const std::vector<std::int64_t> no_strides(4);
    KernelRun run{"mlx_quantised.metal", kernel, {}, {in(w), in(s16), in(b16), in(x16), out(y), value(k), value(out_rows)}, {u32(rows), u32((n + 7) / 8), 1}, {32, 2, 1}};
    if (matrix) {
        run.buffers.push_back(value(m));
        run.grid[0] = u32((n + 31) / 32);
        run.grid[1] = u32((rows + 31) / 32);
        run.threads[2] = 2;
    }
    for (const Bound& b : {value(none), in(no_shape), in(no_strides), value(none), in(no_shape), in(no_strides), in(no_strides), in(no_strides)}) run.buffers.push_back(b);
    Case c{"MLX affine " + kernel, {run}, bfloat || matrix ? 1e-2 : 3e-3, [&] {
               std::vector<float> found;
               for (const std::uint16_t v : y) found.push_back(value_of(v, bfloat));
               return largest_error(found.data(), wanted);
           }};
    if (n % 8) c.known_findings = "the last tile is moved back, so two threadgroups store the same value";
    h.run(c);
}

void softmax(Harness& h, bool looped) {
    const long n = looped ? 3000 : 700, rows = 3;
    auto x = h.random(size(n * rows), 8);
    const std::vector<half> xh(x.begin(), x.end());
    std::vector<half> yh(x.size());
    std::vector<float> y(x.size());
    if (!looped) x.assign(xh.begin(), xh.end());
    std::vector<double> wanted(x.begin(), x.end());
    for (long r = 0; r < rows; r++) {
        const auto first = wanted.begin() + r * n, last = first + n;
        const double most = *std::max_element(first, last);
        double sum = 0;
        for (auto i = first; i != last; ++i) sum += *i = std::exp(*i - most);
        for (auto i = first; i != last; ++i) *i /= sum;
    }
    const int count = static_cast<int>(n);
    h.run({looped ? "MLX softmax_looped f32" : "MLX softmax_single_row f16",
           {{"mlx_softmax.metal", looped ? "looped" : "single", {}, {looped ? in(x) : in(xh), looped ? out(y) : out(yh), value(count)}, {u32(rows), 1, 1},
             {looped ? 1024 : u32(((n + 3) / 4 + 31) / 32 * 32), 1, 1}}},
           looped ? 1e-5 : 1e-3, [&] {
               if (!looped) y.assign(yh.begin(), yh.end());
               return largest_error(y.data(), wanted, looped ? 1e-3 : 1e-2);
           }});
}

// MLX's argument structure of a matrix product.
struct ProductParams {
    int m, n, k, lda, ldb, ldd, tiles_n, tiles_m;
    std::int64_t batch_a, batch_b, batch_d;
    int swizzle, iterations, batch_dimensions, padding;
};

struct Product {
    long m, n, k;
    bool transposed;   // b is [n][k]
    std::vector<half> a, b, d;
    std::vector<double> wanted;
};
Product product(Harness& h, long m, long n, long k, bool transposed) {
    Product p{m, n, k, transposed, h.random<half>(size(m * k)), h.random<half>(size(n * k)), std::vector<half>(size(m * n)), {}};
    for (long r = 0; r < m; r++)
        for (long c = 0; c < n; c++) {
            double sum = 0;
            for (long i = 0; i < k; i++) sum += static_cast<double>(p.a[size(r * k + i)]) * static_cast<double>(p.b[size(transposed ? c * k + i : i * n + c)]);
            p.wanted.push_back(sum);
        }
    return p;
}
ProductParams params_of(const Product& p, long tile_m, long tile_n, long iterations) {
    const auto i = [](long v) { return static_cast<int>(v); };
    return {i(p.m), i(p.n), i(p.k), i(p.k), i(p.transposed ? p.k : p.n), i(p.n), i((p.n + tile_n - 1) / tile_n), i((p.m + tile_m - 1) / tile_m), 0, 0, 0, 0, i(iterations), 0, 0};
}
// Function constants of every steel product: no batch, no addition, and what is a multiple of the tile.
Constants product_constants(bool m, bool n, bool k) {
    const auto word = [](bool b) { return b ? "true" : "false"; };
    return {{10, "", "", "false"}, {100, "", "", "false"}, {110, "", "", "false"}, {200, "", "", word(m)}, {201, "", "", word(n)}, {202, "", "", word(k)}};
}
double error_of(const Product& p) {
    const std::vector<float> found(p.d.begin(), p.d.end());
    return largest_error(found.data(), p.wanted);
}

void steel(Harness& h, bool transposed, bool whole) {
    Product p = whole ? product(h, 64, 64, 64, transposed) : product(h, 45, 39, 70, transposed);
    const ProductParams params = params_of(p, 32, 32, p.k / 16);
    h.run({std::string("MLX steel gemm ") + (transposed ? "nt" : "nn") + (whole ? "" : " ragged"),
           {{"mlx_gemm.metal", transposed ? "gemm_nt" : "gemm_nn", product_constants(whole, whole, whole), {in(p.a), in(p.b), in(p.a), out(p.d), value(params)},
             {u32(params.tiles_n), u32(params.tiles_m), 1}, {32, 2, 2}}},
           2e-3, [&] { return error_of(p); }});
}

std::string name_of(Profile p) { return p == Profile::m1 ? " on m1" : p == Profile::m3 ? " on m3" : " on m5"; }

// Registers of cooperative tensors are written in the order of the chip it was made for.
void tensor_steel(Harness& h, bool transposed, bool whole, Profile profile) {
    Product p = whole ? product(h, 64, 128, 128, transposed) : product(h, 45, 71, 70, transposed);
    const ProductParams params = params_of(p, 64, 64, p.k / 64);
    Case c{std::string("MLX steel gemm, matmul2d ") + (transposed ? "nt" : "nn") + (whole ? "" : " ragged") + name_of(profile),
           {{"mlx_gemm_nax.metal", transposed ? "nax_nt" : "nax_nn", product_constants(whole, whole, whole), {in(p.a), in(p.b), in(p.a), out(p.d), value(params)},
             {u32(params.tiles_n), u32(params.tiles_m), 1}, {32, 2, 2}}},
           2e-3, [&] { return error_of(p); }, profile};
    if (profile != Profile::m5) c.known_wrong = "it writes registers in the order of the M5; this chip's is another";
    h.run(c);
}

// Tensors in memory and load/store only: right on every chip.
void thin(Harness& h, bool transposed, bool whole, bool split, Profile profile) {
    Product p = whole ? product(h, 16, 64, 256, transposed) : product(h, 13, 39, 200, transposed);
    const ProductParams params = params_of(p, 16, 64, (p.k + (split ? 127 : 63)) / (split ? 128 : 64));
    Case c{std::string("MLX thin gemm, matmul2d ") + (transposed ? "nt" : "nn") + (split ? " split k" : "") + (whole ? "" : " ragged") + name_of(profile),
           {{"mlx_thin_nax.metal", std::string("thin_") + (transposed ? "nt" : "nn") + (split ? "_split" : ""), product_constants(whole, whole, whole),
             {in(p.a), in(p.b), in(p.a), out(p.d), value(params)}, {u32(params.tiles_n * params.tiles_m), 1, 1}, {split ? 128u : 64u, 1, 1}}},
           2e-3, [&] { return error_of(p); }, profile};
    if (!whole && p.n % 32) c.known_findings = "the last block is moved back inside, so two simdgroups store the same value";
    h.run(c);
}

}  // namespace

std::string mlx_includes(std::initializer_list<const char*> headers) {
    std::string text;
    for (const char* h : headers) text += std::string("#include \"mlx/backend/metal/kernels/") + h + "\"\n";
    return text;
}

void mlx_quantised(Harness& h) {
    h.add_text("mlx_quantised.metal", mlx_includes({"utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "quantized.h"}) + R"(
instantiate_kernel("qmv_fast", affine_qmv_fast, half, 64, 4, false)
instantiate_kernel("qmv", affine_qmv, half, 64, 4, false)
instantiate_kernel("qmv_bf", affine_qmv, bfloat16_t, 64, 4, false)
instantiate_kernel("qmm_t", affine_qmm_t, half, 64, 4, false, false)
)");
    for (const char* kernel : {"qmv_fast", "qmv", "qmv_bf", "qmm_t"}) affine(h, kernel);
}

void mlx_rows(Harness& h) {
    h.add_text("mlx_softmax.metal", mlx_includes({"utils.h", "softmax.h"}) + R"(
instantiate_kernel("single", softmax_single_row, half, float)
instantiate_kernel("looped", softmax_looped, float, float)
)");
    for (const bool looped : {false, true}) softmax(h, looped);
}

void mlx_products(Harness& h) {
    h.add_text("mlx_gemm.metal", mlx_includes({"utils.h", "steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_fused.h"}) + R"(
instantiate_kernel("gemm_nt", gemm, half, 32, 32, 16, 2, 2, false, true, float)
instantiate_kernel("gemm_nn", gemm, half, 32, 32, 16, 2, 2, false, false, float)
)");
    for (const bool transposed : {true, false})
        for (const bool whole : {true, false}) steel(h, transposed, whole);
}

void mlx_tensors(Harness& h) {
    h.add_text("mlx_gemm_nax.metal", mlx_includes({"utils.h", "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_fused_nax.h"}) + R"(
instantiate_kernel("nax_nt", gemm, half, 64, 64, 64, 2, 2, false, true, float)
instantiate_kernel("nax_nn", gemm, half, 64, 64, 64, 2, 2, false, false, float)
)");
    h.add_text("mlx_thin_nax.metal", mlx_includes({"utils.h", "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_thin_nax.h"}) + R"(
instantiate_kernel("thin_nt", gemm_thin_nax, half, 1, 2, 1, 2, 1, true)
instantiate_kernel("thin_nn", gemm_thin_nax, half, 1, 2, 1, 2, 1, false)
instantiate_kernel("thin_nt_split", gemm_thin_nax, half, 1, 2, 1, 2, 2, true)
)");
    for (const bool transposed : {true, false})
        for (const bool whole : {true, false}) {
            tensor_steel(h, transposed, whole, Profile::m5);
            thin(h, transposed, whole, false, Profile::m5);
            if (transposed) thin(h, transposed, whole, true, Profile::m5);
        }
    for (const Profile other : {Profile::m1, Profile::m3}) {
        tensor_steel(h, true, true, other);
        thin(h, true, false, false, other);
    }
}

}  // namespace metal_emu::foreign
