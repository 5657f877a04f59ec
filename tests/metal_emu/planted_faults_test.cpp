// Kernels with one fault each: the checked mode must report it, of the right kind and at the right line.
// And kernels that look like faults and are none.
#include "emu_test.h"

namespace metal_emu::test {
namespace {

struct Case {
    const char* name;
    const char* body;       // the faulty line ends with "// HERE"
    const char* finding;    // part of the report; null: clean
    std::uint32_t groups = 1;
};

// x: 128 floats, read only; y: 128 floats; n: 4 counters; t: 256 bytes of threadgroup memory. 64 threads.
const Case kCases[] = {
    {"device_read_past_end", "y[tid] = x[tid + 65];  // HERE", "out-of-bounds device read of 4 bytes"},
    {"device_read_before_start", "y[tid] = x[(int)tid - 1];  // HERE", "out-of-bounds device read of 4 bytes"},
    {"device_write_past_end", "y[tid + 65] = x[tid];  // HERE", "out-of-bounds device write of 4 bytes"},
    {"vector_tail", "device const float4* p = (device const float4*)x;\ny[tid] = dot(p[tid / 2 + 1], float4(1.0f));  // HERE",
     "out-of-bounds device read of 16 bytes"},
    {"half_past_end", "device half* h = (device half*)y;\nh[tid + 200] = (half)x[tid];  // HERE", "out-of-bounds device write of 2 bytes"},
    {"write_to_read_only", "device float* w = (device float*)(ulong)x;\nw[tid] = 1.0f;  // HERE", "write to read-only buffer(0)"},
    {"threadgroup_array_overrun", "threadgroup float s[63];\ns[tid] = x[tid];  // HERE\ny[tid] = s[tid];", "out-of-bounds threadgroup write"},
    {"threadgroup_argument_overrun", "t[tid + 1] = x[tid];  // HERE", "out-of-bounds threadgroup write"},
    {"threadgroup_read_between_arrays", "threadgroup float s[8];\nthreadgroup float r[8];\nif (tid < 8) { s[tid] = x[tid]; r[tid] = x[tid]; }\nif (tid == 0) y[0] = s[9];  // HERE",
     "out-of-bounds threadgroup read"},
    {"threadgroup_before_start", "threadgroup float s[64];\ns[(int)tid - 1] = x[tid];  // HERE", "out-of-bounds threadgroup write"},
    {"reduce_without_barrier", "threadgroup float s[64];\ns[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nfor (uint d = 32; d; d >>= 1) {\nif (tid < d) s[tid] += s[tid + d];  // HERE\n}\nif (tid == 0) y[0] = s[0];",
     "race: "},
    {"barrier_mem_none", "threadgroup float s[64];\ns[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_none);\ny[tid] = s[63 - tid];  // HERE", "race: read after unordered write"},
    {"barrier_wrong_memory", "y[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\ny[64 + tid] = y[63 - tid];  // HERE", "race: read after unordered write"},
    {"barrier_device_for_threadgroup", "threadgroup float s[64];\ns[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\ny[tid] = s[63 - tid];  // HERE", "race: read after unordered write"},
    {"missing_second_barrier", "threadgroup float s[64];\nfor (uint i = 0; i < 2; ++i) {\ns[tid] = x[tid + i];  // HERE\nthreadgroup_barrier(mem_flags::mem_threadgroup);\ny[tid] = s[63 - tid];\n}", "race: write after unordered read"},
    {"lanes_through_memory", "threadgroup float s[64];\ns[tid] = x[tid];\ny[tid] = s[tid ^ 1];  // HERE", "by another lane of the same simdgroup"},
    {"simdgroups_with_simdgroup_barrier", "threadgroup float s[64];\ns[tid] = x[tid];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\ny[tid] = s[tid ^ 32];  // HERE", "race: read after unordered write"},
    {"two_writers", "y[tid / 2] = x[tid];  // HERE", "race: write after unordered write"},
    {"all_lanes_one_word", "y[5] = x[tid];  // HERE", "race: write after unordered write"},
    {"read_modify_write", "y[0] += x[tid];  // HERE", "race: "},
    {"groups_share_a_word", "if (tid == 0) y[0] = x[group];  // HERE", "by another threadgroup", 4},
    {"groups_overlap_by_one", "if (tid < 17) y[group * 16 + tid] = x[tid];  // HERE", "by another threadgroup", 4},
    {"groups_read_neighbours", "float v = y[(group * 16 + tid % 16 + 16) % 64];\nif (tid < 16) y[group * 16 + tid] = v;  // HERE", "by another threadgroup", 4},
    {"atomic_and_plain", "atomic_fetch_add_explicit(n, 1u, memory_order_relaxed); if (tid % 63 == 0) *(device uint*)n = 0u;  // HERE", "write after unordered write"},
    {"last_arriver_without_release", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];  // HERE", "by another threadgroup", 4},
    {"last_arriver_without_acquire", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];  // HERE", "by another threadgroup", 4},
    {"last_arriver_without_barrier_before", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];  // HERE", "by another threadgroup", 4},
    {"last_arriver_without_device_barrier_after", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];  // HERE", "by another threadgroup", 4},
    {"last_arriver_fences_its_threadgroup", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_threadgroup);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];  // HERE", "by another threadgroup", 4},
    {"last_arriver_is_not_the_last", "if (tid < 16) y[group * 16 + tid] = x[tid];  // HERE\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 2) y[64 + tid] = y[63 - tid];", "write after unordered read by another threadgroup", 4},
    {"never_written", "threadgroup float s[64];\nif (tid > 0) s[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\ny[tid] = s[63 - tid];  // HERE", "read of never-written threadgroup memory"},
    {"never_written_update", "threadgroup float s[64];\ns[tid] += x[tid];  // HERE\ny[tid] = s[tid];", "read of never-written threadgroup memory"},
    {"never_written_argument", "y[tid] = t[tid];  // HERE", "read of never-written threadgroup memory"},
    {"simd_sum_divergent", "float v = x[tid];\nif (lane < 16) v = simd_sum(v);  // HERE\ny[tid] = v;", "divergent simdgroup operation"},
    {"simd_sum_both_arms", "float v = x[tid];\nif (lane < 16) v = simd_sum(v);\nelse v = simd_sum(v * 2.0f);  // HERE\ny[tid] = v;", "divergent simdgroup operations"},
    {"simd_sum_after_return", "if (lane >= 20) return;\ny[tid] = simd_sum(x[tid]);  // HERE", "divergent simdgroup operation"},
    {"shuffle_in_loop_of_lanes", "float v = 0.0f;\nfor (uint i = 0; i <= lane % 2; ++i) v += simd_shuffle_xor(x[tid], (ushort)1);  // HERE\ny[tid] = v;", "divergent simdgroup operation"},
    {"barrier_of_one_simdgroup", "threadgroup float s[64];\ns[tid] = x[tid];\nif (sg == 0) threadgroup_barrier(mem_flags::mem_threadgroup);  // HERE\ny[tid] = s[tid];", "deadlock / divergent synchronisation"},
    {"barrier_in_both_arms", "if (sg == 0) threadgroup_barrier(mem_flags::mem_threadgroup);\nelse threadgroup_barrier(mem_flags::mem_threadgroup);  // HERE\ny[tid] = x[tid];", "divergent threadgroup_barrier"},
    {"barrier_after_return", "if (tid >= 40) return;\nthreadgroup_barrier(mem_flags::mem_threadgroup);  // HERE\ny[tid] = x[tid];", "deadlock / divergent synchronisation"},
    {"matrix_stored_twice", "simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);\nsimdgroup_store(c, y, 8);  // HERE", "race: write after unordered write"},
    {"matrix_load_past_end", "simdgroup_float8x8 c;\nsimdgroup_load(c, x + 72, 8);  // HERE\nif (sg == 0) simdgroup_store(c, y, 8);", "out-of-bounds device read"},
    {"matrix_rewritten_too_early", "threadgroup float s[64];\ns[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nsimdgroup_float8x8 c;\nsimdgroup_load(c, s, 8);\ns[tid] = 0.0f;  // HERE\nif (sg == 0) simdgroup_store(c, y, 8);", "race: write after unordered read"},
    {"misaligned_store", "if (tid == 0) *(device float4*)(y + 2) = float4(1.0f);  // HERE", "misaligned write of 16 bytes"},
    {"misaligned_load", "device const float4* p = (device const float4*)(x + 1);\ny[tid] = p[0].x;  // HERE", "misaligned read of 16 bytes"},

    {"clean_tree_reduce", "threadgroup float s[64];\ns[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nfor (uint d = 32; d; d >>= 1) {\nif (tid < d) s[tid] += s[tid + d];\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n}\nif (tid == 0) y[0] = s[0];", nullptr},
    {"clean_device_barrier", "y[tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\ny[64 + tid] = y[63 - tid];", nullptr},
    {"clean_whole_simdgroup_returns", "if (sg == 1) return;\ny[tid] = simd_sum(x[tid]);", nullptr},
    {"clean_simdgroup_barrier", "threadgroup float s[64];\ns[tid] = x[tid];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\ny[tid] = s[tid ^ 1];", nullptr},
    {"clean_half_neighbours", "device half* h = (device half*)y;\nh[tid] = (half)x[tid];", nullptr},
    {"clean_groups_apart", "if (tid < 16) y[group * 16 + tid] = x[tid];", nullptr, 4},
    {"clean_atomics", "atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);", nullptr, 4},
    {"clean_last_arriver", "if (tid < 16) y[group * 16 + tid] = x[tid];\nthreadgroup_barrier(mem_flags::mem_device);\nthreadgroup uint last;\nif (tid == 0) {\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\nlast = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);\natomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);\n}\nthreadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nif (last == 3) y[64 + tid] = y[63 - tid];", nullptr, 4},
    {"clean_bfloat_matrix", "threadgroup bfloat s[64];\ns[tid] = bfloat(x[tid]);\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nsimdgroup_bfloat8x8 a;\nsimdgroup_load(a, s, 8);\nsimdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\nsimdgroup_multiply_accumulate(c, a, a, c);\nif (sg == 0) simdgroup_store(c, y, 8);", nullptr},
    {"clean_vectors", "float4 a = float4(x[0], x[1], x[2], x[3]);\nhalf4 h = half4(a);\na.xy = a.wz + float2(h.xy);\nbfloat b = bfloat(a.x);\nuint u = as_type<uint>(a.y);\ny[tid] = float(b) + as_type<float>(u) + dot(a, float4(1.0f)) + max(a.x, a.y) + clamp(a.z, 0.0f, 1.0f);", nullptr},
    {"clean_comparisons", "float4 a = float4(x[tid]);\nfloat4 b = float4(a > 0.5);\nhalf4 h = (half4)b;\nint2 i = (int2)h.xy;\nfloat c = max(0.25, fmax(0, b.x));\ny[tid] = b.x == 1 && i.y == 1 && c == 1 && select(2.0f, 3.0f, true) == 3 ? 1.0f : x[1000];", nullptr},
};

struct Source {
    std::string text = kHeader;
    std::vector<int> lines;   // of the faults, 0 = clean
};

const Source& source() {
    static const Source all = [] {
        Source s;
        int line = 3;
        for (const Case& c : kCases) {
            s.text += std::string("kernel void ") + c.name +
                      "(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], device atomic_uint* n [[buffer(2)]], threadgroup float* t [[threadgroup(0)]], uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {\n";
            ++line;
            int fault = 0;
            for (std::string rest = std::string(c.body) + "\n"; !rest.empty(); ++line) {
                const std::string one = rest.substr(0, rest.find('\n'));
                rest.erase(0, one.size() + 1);
                if (one.find("// HERE") != std::string::npos) fault = line;
                s.text += one + "\n";
            }
            s.text += "}\n";
            ++line;
            s.lines.push_back(fault);
        }
        return s;
    }();
    return all;
}

class PlantedFaults : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (compiler_available(&reason_)) compiled_ = compile_all(source().text, true);
    }
    void SetUp() override {
        if (!reason_.empty()) GTEST_SKIP() << reason_;
    }
    static std::string reason_;
    static Compiled compiled_;
};
std::string PlantedFaults::reason_;
Compiled PlantedFaults::compiled_;

// All cases run in one process, because they are compiled together.
TEST_F(PlantedFaults, AreReportedAtTheirLines) {
    int faults = 0;
    for (std::size_t i = 0; i < std::size(kCases); ++i) {
        const Case& c = kCases[i];
        SCOPED_TRACE(c.name);
        for (const std::uint64_t seed : {0, 1, 2}) {
            std::vector<float> x(128, 1.0f), y(128);
            std::vector<std::uint32_t> n(4);
            Launch l = launch_of(compiled_, c.name, true);
            bind(l, 0, x, true);
            bind(l, 1, y);
            bind(l, 2, n);
            l.threadgroup_bytes[0] = 256;
            l.threads[0] = 64;
            l.grid[0] = c.groups;
            l.seed = seed;
            memory_barrier();
            const std::string found = joined(run(l));
            if (c.finding == nullptr) {
                EXPECT_EQ(found, "");
                continue;
            }
            faults += seed == 0;
            EXPECT_NE(found.find(c.finding), std::string::npos) << "found: " << found;
            EXPECT_NE(found.find("kernels.metal:" + std::to_string(source().lines[i]) + ":"), std::string::npos)
                << "expected line " << source().lines[i] << ", found: " << found;
        }
    }
    EXPECT_GE(faults, 30);
}

}  // namespace
}  // namespace metal_emu::test
