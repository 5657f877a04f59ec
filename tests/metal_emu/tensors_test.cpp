// Metal 4's tensors and matmul2d: right on every chip for kernels that ask where elements lie, wrong for those that
// know; and faults, at their lines.
#include <cmath>
#include <random>

#include "emu_test.h"

namespace metal_emu::test {
namespace {

class Tensors : public testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        if (!compiler_available(&reason)) GTEST_SKIP() << reason;
    }
};

constexpr const char* kTensorHeader = "#include <metal_stdlib>\n#include <metal_tensor>\n#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\nusing namespace metal;\nusing namespace mpp::tensor_ops;\n";

constexpr const char* kProducts = R"(
struct Size { int m, n, k; };
typedef dextents<int, 2> Extents;

// Blocks of 64 x 32 by four simdgroups, k in one piece of whatever length, edges by the extents.
kernel void block(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]], device float* c [[buffer(2)]], constant Size& size [[buffer(3)]],
                  uint2 group [[threadgroup_position_in_grid]]) {
    auto A = tensor(a, Extents(size.k, size.m));
    auto B = tensor(b, Extents(size.n, size.k));
    auto C = tensor(c, Extents(size.n, size.m));
    constexpr auto shape = matmul2d_descriptor(64, 32, static_cast<int>(dynamic_extent));
    matmul2d<shape, execution_simdgroups<4>> op;
    auto left = A.slice(0, (int)group.y * 64);
    auto right = B.slice((int)group.x * 32, 0);
    auto out = C.slice((int)group.x * 32, (int)group.y * 64);
    auto tile = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
    op.run(left, right, tile);
    for (auto it = tile.begin(); it != tile.end(); ++it) *it = *it * 2.0f;
    tile.store(out);
}

// One simdgroup, inputs in registers, accumulating over k; B is [n][k]. Elements are asked for their places.
kernel void registers(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]], device float* c [[buffer(2)]], constant Size& size [[buffer(3)]]) {
    constexpr auto shape = matmul2d_descriptor(16, 32, 16, false, true, true, matmul2d_descriptor::mode::multiply_accumulate);
    matmul2d<shape, execution_simdgroup> op;
    auto left = op.get_left_input_cooperative_tensor<half, half, float>();
    auto right = op.get_right_input_cooperative_tensor<half, half, float>();
    auto tile = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
    for (uint16_t i = 0; i < tile.get_capacity(); ++i) tile[i] = 0.0f;
    auto A = tensor(a, Extents(size.k, size.m));
    for (int k = 0; k < size.k; k += 16) {
        auto part = A.slice<16, 16>(k, 0);
        left.load(part);
        for (uint16_t i = 0; i < right.get_capacity(); ++i) {
            if (!right.is_valid_element(i)) continue;
            auto at = right.get_multidimensional_index(i);
            right[i] = b[at[1] * size.k + k + at[0]];
        }
        op.run(left, right, tile);
    }
    for (uint16_t i = 0; i < tile.get_capacity(); ++i) {
        if (!tile.is_valid_element(i)) continue;
        auto at = tile.get_multidimensional_index(i);
        c[at[1] * size.n + at[0]] = tile[i];
    }
}

// The same result for those who know where a lane's elements lie on one chip: lane l has four neighbours of row
// l/2%4 + l/16*4, and those eight rows below.
kernel void knows(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]], device float* c [[buffer(2)]], constant Size& size [[buffer(3)]],
                  ushort lane [[thread_index_in_simdgroup]]) {
    constexpr auto shape = matmul2d_descriptor(16, 32, 16, false, true, true, matmul2d_descriptor::mode::multiply);
    matmul2d<shape, execution_simdgroup> op;
    auto A = tensor(a, Extents(size.k, size.m));
    auto B = tensor(b, Extents(size.k, size.n));
    auto tile = op.get_destination_cooperative_tensor<decltype(A), decltype(B), float>();
    op.run(A, B, tile);
    const short q = lane >> 2, row = (q & 4) | ((lane >> 1) & 3), column = ((q & 2) | (lane & 1)) * 4;
    for (short i = 0; i < 16; ++i) c[(row + (i >> 2) % 2 * 8) * size.n + column + i % 4 + i / 8 * 16] = tile[i];
}

// A tensor that the host describes, a destination in memory, each thread for itself.
kernel void handles(tensor<device const half, Extents> a [[buffer(0)]], tensor<device const half, Extents> b [[buffer(1)]], tensor<device float, Extents> c [[buffer(2)]]) {
    matmul2d<matmul2d_descriptor(8, 8, 8, true), execution_thread> op;
    op.run(a, b, c);
}
)";

struct Problem {
    std::uint32_t size[3];   // m, n, k
    bool left_columns = false, right_rows = false;   // a is [k][m]; b is [n][k]
    std::vector<_Float16> a, b;
    std::vector<float> c;
};

Problem problem(std::uint32_t m, std::uint32_t n, std::uint32_t k, bool left_columns = false, bool right_rows = false) {
    std::mt19937 random(m + n * 31 + k * 997);
    std::uniform_real_distribution<float> d(-1, 1);
    Problem p{{m, n, k}, left_columns, right_rows, {}, {}, std::vector<float>(m * n, NAN)};
    for (std::uint32_t i = 0; i < m * k; ++i) p.a.push_back(static_cast<_Float16>(d(random)));
    for (std::uint32_t i = 0; i < k * n; ++i) p.b.push_back(static_cast<_Float16>(d(random)));
    return p;
}

double largest_error(const Problem& p, double scale) {
    const auto [m, n, k] = p.size;
    double worst = 0;
    for (std::uint32_t r = 0; r < m; ++r)
        for (std::uint32_t c = 0; c < n; ++c) {
            double sum = 0;
            for (std::uint32_t i = 0; i < k; ++i)
                sum += static_cast<double>(p.a[p.left_columns ? i * m + r : r * k + i]) * static_cast<double>(p.b[p.right_rows ? c * k + i : i * n + c]);
            const double e = std::fabs(static_cast<double>(p.c[r * n + c]) - scale * sum);
            worst = std::isnan(e) ? INFINITY : std::max(worst, e);
        }
    return worst;
}

std::string run_product(const Compiled& compiled, const char* kernel, bool check, Problem& p, std::uint32_t groups_x, std::uint32_t groups_y, std::uint32_t threads) {
    Launch l = launch_of(compiled, kernel, check);
    bind(l, 0, p.a, true);
    bind(l, 1, p.b, true);
    bind(l, 2, p.c);
    l.buffers[3] = p.size;
    l.bytes[3] = sizeof p.size;
    l.read_only[3] = true;
    l.grid[0] = groups_x;
    l.grid[1] = groups_y;
    l.threads[0] = threads;
    memory_barrier();
    return joined(run(l));
}

TEST_F(Tensors, ProductsAreRightInEveryLayout) {
    for (const Profile profile : {Profile::m1, Profile::m3, Profile::m5})
        for (const bool check : {false, true}) {
            const Compiled compiled = compile_all(std::string(kTensorHeader) + kProducts, check, profile);
            for (const auto& [m, n, k] : {std::array{64u, 32u, 64u}, {70u, 45u, 37u}, {3u, 5u, 100u}}) {
                Problem p = problem(m, n, k);
                EXPECT_EQ(run_product(compiled, "block", check, p, (n + 31) / 32, (m + 63) / 64, 128), "");
                EXPECT_LT(largest_error(p, 2), 1e-3) << m << "x" << n << "x" << k;
            }
            Problem p = problem(16, 32, 48, false, true);
            EXPECT_EQ(run_product(compiled, "registers", check, p, 1, 1, 32), "");
            EXPECT_LT(largest_error(p, 1), 1e-3);
        }
}

TEST_F(Tensors, AssumedPlacesAreRightOnOneChipOnly) {
    for (const Profile profile : {Profile::m1, Profile::m3, Profile::m5}) {
        const Compiled compiled = compile_all(std::string(kTensorHeader) + kProducts, false, profile);
        Problem p = problem(16, 32, 16, false, true);
        EXPECT_EQ(run_product(compiled, "knows", false, p, 1, 1, 32), "");
        if (profile == Profile::m5) EXPECT_LT(largest_error(p, 1), 1e-3);
        else EXPECT_GT(largest_error(p, 1), 0.1);
    }
}

TEST_F(Tensors, TheHostDescribesTensors) {
    const Compiled compiled = compile_all(std::string(kTensorHeader) + kProducts, true);
    Problem p = problem(8, 6, 5, true);   // smaller than the tile
    Launch l = launch_of(compiled, "handles", true);
    bind(l, 0, p.a, true);
    bind(l, 1, p.b, true);
    bind(l, 2, p.c);
    const long shapes[3][2] = {{8, 5}, {6, 5}, {6, 8}};
    for (int i = 0; i < 3; ++i) std::copy_n(shapes[i], 2, l.tensor_shapes[i]);
    memory_barrier();
    EXPECT_EQ(joined(run(l)), "");
    EXPECT_LT(largest_error(p, 1), 1e-3);
}

struct Fault {
    const char* name;
    const char* body;      // the faulty line ends with "// HERE"
    const char* finding;   // null: clean
};
// x: 1024 halves, read only; y: 1024 floats; t: 4 KiB of threadgroup memory; two simdgroups.
const Fault kFaults[] = {
    {"static_slice_past_end", "auto X = tensor(x, E(32, 32));\nauto a = X.slice<16, 16>(24, 20);\nauto b = X.slice<32, 16>(0, 0);\nauto c = D(op, a, b);\nop.run(a, b, c);  // HERE\nif (sg == 0) c.store(Y);", "out-of-bounds device read of 2 bytes"},
    {"store_past_end", "auto X = tensor(x, E(32, 32));\nauto c = D(op, X, X);\nop.run(X, X, c);\nauto out = Y.slice<32, 16>(0, 20);\nif (sg == 0) c.store(out);  // HERE", "out-of-bounds device write of 4 bytes"},
    {"both_simdgroups_store", "auto X = tensor(x, E(32, 32));\nauto c = D(op, X, X);\nop.run(X, X, c);\nc.store(Y);  // HERE", "race: write after unordered write"},
    {"tile_without_barrier", "for (uint i = tid; i < 1024; i += 64) t[i] = x[i];\nauto T = tensor(t, E(32, 32));\nauto c = D(op, T, T);\nop.run(T, T, c);  // HERE\nif (sg == 0) c.store(Y);", "race: read after unordered write"},
    {"own_lane_wrote_it", "if (sg == 0) {\nfor (uint i = tid; i < 1024; i += 32) t[i] = x[i];\nauto T = tensor(t, E(32, 32));\nauto c = D(op, T, T);\nop.run(T, T, c);  // HERE\nc.store(Y);\n}", "by another lane of the same simdgroup"},
    {"rewritten_too_early", "for (uint i = tid; i < 1024; i += 64) t[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nauto T = tensor(t, E(32, 32));\nauto c = D(op, T, T);\nop.run(T, T, c);\nfor (uint i = tid; i < 1024; i += 64) t[i] = 0.0h;  // HERE\nif (sg == 0) c.store(Y);", "race: write after unordered read"},
    {"never_written_tile", "auto T = tensor(t, E(32, 32));\nauto c = D(op, T, T);\nop.run(T, T, c);  // HERE\nif (sg == 0) c.store(Y);", "read of never-written threadgroup memory"},
    {"run_by_half", "auto X = tensor(x, E(32, 32));\nauto c = D(op, X, X);\nif (lane < 16) op.run(X, X, c);  // HERE\nif (sg == 0) c.store(Y);", "divergent simdgroup operation"},
    {"store_by_half", "auto X = tensor(x, E(32, 32));\nauto c = D(op, X, X);\nop.run(X, X, c);\nif (lane < 16) c.store(Y);  // HERE", "divergent simdgroup operation"},
    {"too_few_simdgroups", "auto X = tensor(x, E(32, 32));\nmatmul2d<matmul2d_descriptor(16, 32, 16), execution_simdgroups<4>> wide;\nauto c = wide.get_destination_cooperative_tensor<decltype(X), decltype(X), float>();  // HERE\nwide.run(X, X, c);\nc.store(Y);", "a scope of 4 simdgroups in a threadgroup of 2"},
    {"clean_product", "auto X = tensor(x, E(32, 32));\nauto c = D(op, X, X);\nop.run(X, X, c);\nif (sg == 0) c.store(Y);", nullptr},
    {"clean_tile", "for (uint i = tid; i < 1024; i += 64) t[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nauto T = tensor(t, E(32, 32));\nauto c = D(op, T, T);\nop.run(T, T, c);\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nfor (uint i = tid; i < 1024; i += 64) t[i] = 0.0h;\nif (sg == 0) c.store(Y);", nullptr},
};

TEST_F(Tensors, PlantedFaultsAreReportedAtTheirLines) {
    std::string text = std::string(kTensorHeader) +
                       "typedef dextents<int, 2> E; typedef matmul2d<matmul2d_descriptor(16, 32, 16), execution_simdgroup> Op;\n"
                       "template <class A, class B> auto D(thread Op& op, thread A&, thread B&) { return op.template get_destination_cooperative_tensor<A, B, float>(); }\n";
    std::vector<int> lines;
    int line = 8;
    for (const Fault& f : kFaults) {
        text += std::string("kernel void ") + f.name +
                "(device const half* x [[buffer(0)]], device float* y [[buffer(1)]], threadgroup half* t [[threadgroup(0)]], uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) { Op op; auto Y = tensor(y, E(32, 32)); (void)Y;\n";
        const std::string body = std::string(f.body) + "\n";
        const auto here = body.find("// HERE");
        lines.push_back(line + 1 + static_cast<int>(std::count(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(here == std::string::npos ? 0 : here), '\n')));
        line += 2 + static_cast<int>(std::count(body.begin(), body.end(), '\n'));
        text += body + "}\n";
    }
    for (const Profile profile : {Profile::m1, Profile::m5}) {
        const Compiled compiled = compile_all(text, true, profile);
        for (std::size_t i = 0; i < std::size(kFaults); ++i) {
            const Fault& f = kFaults[i];
            SCOPED_TRACE(f.name);
            for (const std::uint64_t seed : {0, 1}) {
                std::vector<_Float16> x(1024, static_cast<_Float16>(1));
                std::vector<float> around(3072, -1), y(1024);
                Launch l = launch_of(compiled, f.name, true);
                bind(l, 0, x, true);
                bind(l, 1, y);
                l.buffers[1] = around.data() + 1024;   // a checked store past the end is not made
                l.threadgroup_bytes[0] = 4096;
                l.threads[0] = 64;
                l.seed = seed;
                memory_barrier();
                const std::string found = joined(run(l));
                for (std::size_t k = 0; k < 1024; ++k) EXPECT_TRUE(around[k] == -1 && around[2048 + k] == -1) << k;
                if (f.finding == nullptr) {
                    EXPECT_EQ(found, "");
                    continue;
                }
                EXPECT_NE(found.find(f.finding), std::string::npos) << "found: " << found;
                EXPECT_NE(found.find("kernels.metal:" + std::to_string(lines[i]) + ":"), std::string::npos) << "expected line " << lines[i] << ", found: " << found;
            }
        }
    }
}

}  // namespace
}  // namespace metal_emu::test
