#include "gpu/builder.h"

namespace forge::gpu {

Kernel conv(const Common& c, const DeltaShape& s) {
    EntryBuilder b("conv");
    const char* t = storage(c.type);
    const int threads = 64;
    const std::string step = b.read("step", "int"), u = b.read("u", t), weight = b.vector(true, "weight"), state = b.write("state", t);
    b.statement(fmt::format("fk::conv<{}, {}, {}, {}, {}>({}, {}, {}, {}, {}, id);", type_name(c.type), s.channels(), s.conv_kernel, c.max_rows, threads, step, u, weight, state,
                            b.write("y", t)));
    return b.finish(threads, {divide_up(s.channels(), threads), 0});
}

Kernel delta(const Common& c, const DeltaShape& s) {
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
    b.statement(fmt::format("fk::gated_norm<{}, {}, {}>({}, {}, {}, {}, {}, {}, id);", type_name(c.type), heads, width, step, x, z, weight, b.write(y, t), literal(eps)));
    return b.finish(32, {heads});
}

}  // namespace forge::gpu
