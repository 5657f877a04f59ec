#include <algorithm>

#include "gpu/builder.h"

namespace forge::gpu {
namespace {

// Rows of a chunk on tensor cores: with wgmma there is shared memory for 64, as capability 9.0 has it.
int chunk_rows(const Common& c) { return c.limits.tensor == Tensor::wgmma ? 64 : 32; }

// What TensorDelta lays out in shared memory.
int chunk_bytes(const DeltaShape& s, int rows) {
    const int columns = std::min(s.v_dim, 64), tiles = rows * (2 * (s.k_dim * 2 + 16) + columns * 2 + 16), matrix = rows * (rows * 2 + 16), factors = (4 * rows + 8) * 4;
    return 3 * tiles + 2 * (4 * matrix + factors) + (4 * rows + rows / 16 * (16 * 20 + 4)) * 4 + 4 * 8;
}

Kernel delta_tensor(const Common& c, const DeltaShape& s) {
    EntryBuilder b("delta");
    const char* t = storage(c.type);
    const int rows = chunk_rows(c), bytes = chunk_bytes(s, rows);
    const std::string step = b.read("step", "int"), x = b.read("c", t), beta = b.read("b", t), alpha = b.read("a", t), a_log = b.vector(true, "a_log"), dt_bias = b.vector(true, "dt_bias"),
                      state = b.write("state", "float"), y = b.write("y", t);
    b.statement(fmt::format("fk::delta_tensor<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.n_k_heads, s.n_v_heads, s.k_dim, s.v_dim,
                            s.tiled_heads ? 1 : 0, s.negative_exp ? 1 : 0, rows, bytes, c.max_rows, step, x, beta, alpha, a_log, dt_bias, state, y, b.array("memory", "uint4", bytes / 16)));
    return b.finish((std::min(s.v_dim, 64) / 16 + 4) * 32, {s.n_v_heads * divide_up(s.v_dim, 64), 0});
}

}  // namespace

Kernel conv(const Common& c, const DeltaShape& s) {
    EntryBuilder b("conv");
    const char* t = storage(c.type);
    const int threads = 64, block = 64;   // channels, and rows, of a threadgroup
    const std::string step = b.read("step", "int"), u = b.read("u", t), weight = b.vector(true, "weight"), state = b.write("state", t);
    b.statement(fmt::format("fk::conv<{}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, id);", type_name(c.type), s.channels(), s.conv_kernel, c.max_rows, block, threads, step, u, weight, state,
                            b.write("y", t)));
    return b.finish(threads, {divide_up(s.channels(), threads), block});
}

bool delta_tensor_fits(const Common& c, const DeltaShape& s) {
    return (c.limits.tensor == Tensor::mma_sync || c.limits.tensor == Tensor::wgmma) && c.type != DType::f32 && c.max_rows > 8 && s.k_dim % 16 == 0 && s.k_dim <= 128 && s.v_dim % 16 == 0;
}

Kernel delta(const Common& c, const DeltaShape& s) {
    if (delta_tensor_fits(c, s)) return delta_tensor(c, s);
    EntryBuilder b("delta");
    const char* t = storage(c.type);
    constexpr int threads = 64, columns = 8;   // columns of a simdgroup: whole 32 bytes of the state
    const int ahead = c.max_rows > 8 ? 8 : 1;   // rows whose lengths are added up together
    const std::string step = b.read("step", "int"), x = b.read("c", t), beta = b.read("b", t), alpha = b.read("a", t),
                      a_log = b.vector(true, "a_log"), dt_bias = b.vector(true, "dt_bias"),
                      state = b.write("state", "float"), y = b.write("y", t);
    b.statement(fmt::format("fk::delta<{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, id);", type_name(c.type), s.n_k_heads, s.n_v_heads, s.k_dim, s.v_dim,
                            s.tiled_heads ? 1 : 0, s.negative_exp ? 1 : 0, columns, ahead, c.max_rows, threads, step, x, beta, alpha, a_log, dt_bias, state, y));
    return b.finish(threads, {s.n_v_heads * divide_up(s.v_dim, columns * threads / 32), 0});
}

Kernel gated_norm(const Common& c, int heads, int width, float eps, const char* weight_name, const char* y) {
    EntryBuilder b("gated_norm");
    const char* t = storage(c.type);
    const std::string step = b.read("step", "int"), x = b.read("x", t), z = b.read("z", t), weight = b.vector(true, weight_name);
    const int threads = 32 * std::min(heads, 8);
    b.statement(fmt::format("fk::gated_norm<{}, {}, {}, {}>({}, {}, {}, {}, {}, {}, id);", type_name(c.type), heads, width, threads, step, x, z, weight, b.write(y, t), literal(eps)));
    return b.finish(threads, {divide_up(heads, threads / 32)});
}

}  // namespace forge::gpu
