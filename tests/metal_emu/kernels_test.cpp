// Kernels that use the language as ours do: results against plain C++, plain and checked, in several orders of
// lanes; what the compiler must refuse; and what differs between chips.
#include <cmath>
#include <random>

#include "emu_test.h"

namespace metal_emu::test {
namespace {

class Kernels : public testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        if (!compiler_available(&reason)) GTEST_SKIP() << reason;
    }
};

constexpr const char* kMatvec = R"(
struct Args { uint rows, columns; };
template <typename T> inline float dot4(device const T* w, device const T* x, uint k) {
    float sum = 0.0f;
    for (uint j = 0; j < 4; ++j) sum = fma((float)w[k + j], (float)x[k + j], sum);
    return sum;
}
template <typename T> kernel void matvec(device const T* w [[buffer(0)]], device const T* x [[buffer(1)]], device float* y [[buffer(2)]],
    constant Args& a [[buffer(3)]], uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint nsg [[simdgroups_per_threadgroup]]) {
    const uint row = group * nsg + sg;
    if (row >= a.rows) return;
    float sum = 0.0f;
    for (uint k = lane * 4; k < a.columns; k += 128) sum += dot4(w + (ulong)row * a.columns, x, k);
    sum = simd_sum(sum);
    if (lane == 0) y[row] = sum;
}
template [[host_name("matvec_half")]] kernel void matvec<half>(device const half*, device const half*, device float*, constant Args&, uint, uint, uint, uint);
template [[host_name("matvec_float")]] kernel void matvec<float>(device const float*, device const float*, device float*, constant Args&, uint, uint, uint, uint);

kernel void product(device const half* A [[buffer(0)]], device const half* B [[buffer(1)]], device float* C [[buffer(2)]],
    constant uint3& size [[buffer(3)]], threadgroup half* tile [[threadgroup(0)]], uint2 tg [[threadgroup_position_in_grid]],
    ushort sg [[simdgroup_index_in_threadgroup]], uint tid [[thread_index_in_threadgroup]]) {
    threadgroup half* a = tile;
    threadgroup half* b = tile + 32 * 16;
    simdgroup_float8x8 sum[2][2];
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) sum[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const uint r = (sg / 2) * 16, c = (sg % 2) * 16;
    for (uint k = 0; k < size.z; k += 16) {
        for (uint e = tid; e < 32 * 16; e += 128) {
            a[e] = A[(tg.y * 32 + e / 16) * size.z + k + e % 16];
            b[e] = B[(k + e / 32) * size.y + tg.x * 32 + e % 32];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint kk = 0; kk < 16; kk += 8) {
            simdgroup_half8x8 fa[2], fb[2];
            for (int i = 0; i < 2; ++i) {
                simdgroup_load(fa[i], a + (r + 8 * i) * 16 + kk, 16);
                simdgroup_load(fb[i], b + kk * 32 + c + 8 * i, 32);
            }
            for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) simdgroup_multiply_accumulate(sum[i][j], fa[i], fb[j], sum[i][j]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j)
        simdgroup_store(sum[i][j], C + (tg.y * 32 + r + 8 * i) * size.y + tg.x * 32 + c + 8 * j, size.y);
}

kernel void diagonal_of_lanes(device float* y [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
    simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const int q = (int)lane / 4, row = (q & 4) + ((int)lane / 2) % 4, column = (q & 2) * 2 + ((int)lane % 2) * 2;
    m.thread_elements()[0] = (float)(row * 8 + column);
    m.thread_elements()[1] = (float)(row * 8 + column + 1);
    simdgroup_store(m, y, 8);
}
)";

std::vector<float> random_floats(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> d(-1, 1);
    std::vector<float> v(n);
    for (float& x : v) x = d(random);
    return v;
}

std::vector<_Float16> halves(const std::vector<float>& v) { return {v.begin(), v.end()}; }

template <typename T>
void run_matvec(const Compiled& compiled, const char* name, bool check) {
    std::uint32_t size[2] = {37, 260};
    const auto w = random_floats(37 * 260, 1), x = random_floats(260, 2);
    std::vector<T> wt(w.begin(), w.end()), xt(x.begin(), x.end());
    std::vector<float> first;
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
        std::vector<float> y(37, NAN);
        Launch l = launch_of(compiled, name, check);
        bind(l, 0, wt, true);
        bind(l, 1, xt, true);
        bind(l, 2, y);
        l.buffers[3] = size;
        l.bytes[3] = sizeof size;
        l.read_only[3] = true;
        l.grid[0] = 10;
        l.threads[0] = 128;
        l.seed = seed;
        l.workers = 2;
        memory_barrier();
        EXPECT_EQ(joined(run(l)), "");
        for (int r = 0; r < 37; ++r) {
            double sum = 0;
            for (int k = 0; k < 260; ++k) sum += static_cast<double>(wt[r * 260 + k]) * static_cast<double>(xt[k]);
            EXPECT_NEAR(y[static_cast<std::size_t>(r)], sum, 1e-4) << r;
        }
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << "depends on the order of lanes";
    }
}

TEST_F(Kernels, TemplatesMatchPlainLoops) {
    for (const bool check : {false, true}) {
        const Compiled compiled = compile_all(std::string(kHeader) + kMatvec, check);
        run_matvec<_Float16>(compiled, "matvec_half", check);
        run_matvec<float>(compiled, "matvec_float", check);
    }
}

TEST_F(Kernels, MatricesMultiplyInEveryLayout) {
    for (const Profile profile : {Profile::m1, Profile::m3, Profile::m5}) {
        const Compiled compiled = compile_all(std::string(kHeader) + kMatvec, true, profile);
        auto a = halves(random_floats(64 * 48, 3)), b = halves(random_floats(48 * 32, 4));
        std::vector<float> c(64 * 32, NAN);
        std::uint32_t size[4] = {64, 32, 48, 0};
        Launch l = launch_of(compiled, "product", true);
        bind(l, 0, a, true);
        bind(l, 1, b, true);
        bind(l, 2, c);
        l.buffers[3] = size;
        l.bytes[3] = sizeof size;
        l.read_only[3] = true;
        l.threadgroup_bytes[0] = 2048;
        l.grid[1] = 2;
        l.threads[0] = 128;
        memory_barrier();
        EXPECT_EQ(joined(run(l)), "");
        for (int i = 0; i < 64; ++i)
            for (int j = 0; j < 32; ++j) {
                double sum = 0;
                for (int k = 0; k < 48; ++k) sum += static_cast<double>(a[i * 48 + k]) * static_cast<double>(b[k * 32 + j]);
                EXPECT_NEAR(c[static_cast<std::size_t>(i * 32 + j)], sum, 1e-3);
            }
    }
}

// A kernel that knows where elements lie is right on one chip only.
TEST_F(Kernels, ElementLayoutDiffersBetweenChips) {
    const auto wrong = [](Profile profile) {
        const Compiled compiled = compile_all(std::string(kHeader) + kMatvec, false, profile);
        std::vector<float> y(64, NAN);
        Launch l = launch_of(compiled, "diagonal_of_lanes", false);
        bind(l, 0, y);
        l.threads[0] = 32;
        run(l);
        int count = 0;
        for (int i = 0; i < 64; ++i) count += y[static_cast<std::size_t>(i)] != static_cast<float>(i);
        return count;
    };
    EXPECT_EQ(wrong(Profile::m1), 0);
    EXPECT_GT(wrong(Profile::m3), 0);
    EXPECT_GT(wrong(Profile::m5), 0);
}

TEST_F(Kernels, TooSmallThreadgroupMemoryIsFound) {
    const Compiled compiled = compile_all(std::string(kHeader) + kMatvec, true);
    auto a = halves(random_floats(32 * 16, 3)), b = halves(random_floats(16 * 32, 4));
    std::vector<float> c(32 * 32);
    std::uint32_t size[4] = {32, 32, 16, 0};
    Launch l = launch_of(compiled, "product", true);
    bind(l, 0, a, true);
    bind(l, 1, b, true);
    bind(l, 2, c);
    l.buffers[3] = size;
    l.bytes[3] = sizeof size;
    l.threadgroup_bytes[0] = 1984;
    l.threads[0] = 128;
    memory_barrier();
    EXPECT_NE(joined(run(l)).find("out-of-bounds threadgroup write"), std::string::npos);
}

// Two dispatches of one encoder without a memory barrier between.
TEST_F(Kernels, MissingBarrierBetweenDispatchesIsFound) {
    const Compiled compiled = compile_all(std::string(kHeader) + "kernel void copy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[i]; }\n", true);
    for (const bool barrier : {true, false}) {
        std::vector<float> x(64, 1), y(64), z(64);
        Launch first = launch_of(compiled, "copy", true), second = first;
        first.threads[0] = second.threads[0] = 64;
        bind(first, 0, x, true);
        bind(first, 1, y);
        bind(second, 0, y, true);
        bind(second, 1, z);
        memory_barrier();
        EXPECT_EQ(joined(run(first)), "");
        if (barrier) memory_barrier();
        const std::string found = joined(run(second));
        if (barrier) EXPECT_EQ(found, "");
        else EXPECT_NE(found.find("of an earlier dispatch with no memory barrier between"), std::string::npos) << found;
    }
}

std::string refusal(const std::string& body) {
    std::string error;
    const Library library = parse(kHeader + body, &error);
    if (!error.empty()) return error;
    return compile(library, {}, {}, {}).log;
}

TEST_F(Kernels, WhatMetalRefusesIsRefused) {
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]], threadgroup float* s [[threadgroup(0)]]) { device float* q = s; q[0] = x[0]; }").find("error"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]]) { float* q = x; q[0] = 1.0f; }").find("error"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(constant float& c [[buffer(0)]]) { c = 1.0f; }").find("error"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]]) { double d = x[0]; x[0] = (float)d; }").find("error"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]]) { x[0] = new float(1.0f)[0]; }").find("error"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]]) { x[0] = undeclared; }").find("kernels.metal:3:"), std::string::npos);
    EXPECT_NE(refusal("kernel void k(device float* x [[buffer(0)]], uint i) { x[i] = 0.0f; }").find("has no attribute"), std::string::npos);
    EXPECT_EQ(refusal("kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 0.0f; }"), "");
}

TEST_F(Kernels, FunctionConstantsSelectCode) {
    const std::string text = std::string(kHeader) +
                             "constant uint kScale [[function_constant(3)]];\nconstant bool kAdd [[function_constant(4)]];\n"
                             "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] * (float)kScale; "
                             "if (is_function_constant_defined(kAdd)) x[i] += 1.0f; }\n";
    std::string error;
    const Library library = parse(text, &error);
    EXPECT_EQ(declared_constants(text).size(), 2u);
    for (const bool add : {false, true}) {
        std::vector<FunctionConstant> constants{{3, "", "", "5"}};
        if (add) constants.push_back({4, "", "", "true"});
        const Compiled compiled = compile(library, {"k"}, constants, {});
        ASSERT_TRUE(compiled.ok) << compiled.log;
        std::vector<float> x(32, 2);
        Launch l = launch_of(compiled, "k", false);
        bind(l, 0, x);
        l.threads[0] = 32;
        run(l);
        EXPECT_EQ(x, std::vector<float>(32, add ? 11.0f : 10.0f));
    }
}

// Frames larger than the memory that guards a stack, too.
TEST_F(Kernels, AStackThatOverflowsIsNamed) {
    for (const int size : {200000, 20000000}) {
        const Compiled compiled = compile_all(std::string(kHeader) + "kernel void large(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { int a[" + std::to_string(size) +
                                                  "]; for (int k = 0; k < x[1]; ++k) a[k * 7] = k; x[0] = a[x[2]] + a[(int)i]; }\n", false);
        std::vector<int> x{0, 100, 14};
        Launch l = launch_of(compiled, "large", false);
        bind(l, 0, x);
        EXPECT_DEATH(run(l), "thread 0 of kernel large overflowed its stack");
    }
}

}  // namespace
}  // namespace metal_emu::test
