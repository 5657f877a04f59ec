// Races between threadgroups, which run on several host threads: found every time, and never where there is none.
#include "emu_test.h"

namespace metal_emu::test {
namespace {

struct Race {
    const char* name;
    const char* body;
    bool racy;
};
// x: 256 floats, read only; y: 256 floats; four threadgroups of 64.
const Race kRaces[] = {
    {"apart", "y[g] = x[g];", false},
    {"one_address", "y[tid] = x[tid];", true},
    {"read_then_written_by_another", "float v = y[(g + 64) % 256]; y[g] = v + 1.0f;", true},
    {"halves_of_a_word", "device half* h = (device half*)y; h[g] = (half)x[g];", false},
    {"atomic_counter", "atomic_fetch_add_explicit((device atomic_uint*)y, 1u, memory_order_relaxed);", false},
    {"overlap_by_one", "y[g] = x[g]; if (tid == 63) y[(g + 1) % 256] = 0.0f;", true},
};

TEST(ThreadgroupRaces, AreFoundEveryTime) {
    std::string reason;
    if (!compiler_available(&reason)) GTEST_SKIP() << reason;
    std::string text = kHeader;
    for (const Race& r : kRaces)
        text += std::string("kernel void ") + r.name +
                "(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint g [[thread_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) { " + r.body + " }\n";
    const Compiled compiled = compile_all(text, true);
    for (const Race& r : kRaces)
        for (const int workers : {1, 2}) {
            int found = 0;
            for (int k = 0; k < 100; ++k) {
                std::vector<float> x(256, 1), y(256);
                Launch l = launch_of(compiled, r.name, true);
                bind(l, 0, x, true);
                bind(l, 1, y);
                l.grid[0] = 4;
                l.threads[0] = 64;
                l.workers = workers;
                memory_barrier();
                found += !run(l).empty();
            }
            EXPECT_EQ(found, r.racy ? 100 : 0) << r.name << " with " << workers << " workers";
        }
}

}  // namespace
}  // namespace metal_emu::test
