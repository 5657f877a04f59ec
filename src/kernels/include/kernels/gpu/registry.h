// The rows of the GPU kernel table: from the shapes of an operation to its kernel. Parameter structs of the CPU
// kernels say what each computes.
#pragma once

#include "base/dtype.h"
#include "kernels/gpu/kernel.h"
#include "kernels/matmul/matmul.h"
#include "quant/weight.h"

namespace forge::gpu {

// Matrix units that kernels are made for.
enum class Tensor : std::uint8_t { none, mma_sync, wgmma, simdgroup };   // the last one: Metal's 8x8 matrices

// What a kernel may use of a device.
struct Limits {
    int threadgroup_bytes = 32 * 1024;
    int cores = 8;             // threadgroups that run at a time, roughly; grids of resident kernels
    bool fast_codes = true;    // 4-bit codes through a float's mantissa (16-bit activations only)
    Tensor tensor = Tensor::none;
    bool matmul2d = false;     // Metal 4's tensor operations, beside simdgroup
    bool join = true;          // products that nothing separates run in one launch
    bool merge = true;         // parts of a short context are merged where they are made, not in a launch of their own
    bool wide = false;         // tiles for few rows that a large GPU reads memory fastest with (matmul.cpp)
    bool even = true;          // with `wide`: products of one row are shared out evenly among the cores
    int near_positions = 8192; // wgmma: positions from which decode attention is cut into a threadgroup a core, or more (attention.cpp)
    long tensor_codes = 4 << 20;   // `wide` and `tensor`: elements from which a matrix of 4-bit codes takes few rows on tensor cores
};

// Common to all: T, and the most rows that a program takes (layout of the step record).
struct Common {
    DType type = DType::bf16;
    int max_rows = 1;
    Limits limits = {};
};

// Rows of W * x'. `x_rows`: most rows this variant serves (1..8). Names the operands of the "matvec" launch.
struct MatvecShape {
    const Weight *w = nullptr, *w2 = nullptr;
    bool norm = false, bias = false;
    int gated_head = 0;        // width of a head: x is gated_norm(x, "z") with "norm_weight" (instead of a norm)
    bool conv = false;         // the convolution of `conv_kernel` taps over the result, with "conv_weight" and "conv_state"
    int conv_kernel = 4;
    NormFormula formula = NormFormula::two_rounding;
    float eps = 0, softcap = 0;
    Epilogue epilogue = Epilogue::none;
    ActKind act = ActKind::silu;
    bool f32_out = false, output_rows = false;
    int x_rows = 1;
    std::int64_t beside = 0;   // matrix rows of other products with the same tile in the same launch; -1: there are some with other tiles
};
// The literals of a matvec. Those in which variants differ leave a row's sums as they are, threads included (text/types.h,
// NormShare); split does not, and on tensor cores units does not: these depend on the matrix alone.
struct MatvecTile {
    int strip = 2, units = 1, threads = 256;   // matrix rows of a strip, units in flight, threads of a threadgroup
    int split = 1;                             // simdgroups that share a strip
    bool ahead = false;                        // the next units are loaded before these are used
    int residents = 0;                         // threadgroups of a multiprocessor in which the grid goes round (0: one for every strip)
    bool staged = true;                        // x in threadgroup memory
    int x_bytes = 0;                           // of it
    bool tensor = false;                       // on tensor cores (text/tensor_rows.h): `strip` counts tiles of 16 rows
    bool operator==(const MatvecTile&) const = default;
};
// The default first. alone: nothing runs beside the launch, so that its threads and grid can be others too.
std::vector<MatvecTile> matvec_tiles(const Common& c, const MatvecShape& s, bool alone);
std::string name_of(const MatvecTile& tile);
// Whether the norm fits into the product's own threadgroup memory; otherwise norm first, into "scratch".
bool norm_fits(const Common& c, const MatvecShape& s);
Kernel matvec(const Common& c, const MatvecShape& s);
Kernel matvec(const Common& c, const MatvecShape& s, const MatvecTile& tile);
// More than 8 rows; x is plain rows (operand "packed").
Kernel gemm(const Common& c, const MatvecShape& s);
// The same on tensor cores, where they are right for this weight and these activations; tiles of rows x columns.
bool tensor_fits(const Common& c, const MatvecShape& s);
struct TensorTile {
    int rows, columns, stages;
    bool operator==(const TensorTile&) const = default;
};
std::vector<TensorTile> tensor_tiles(const Common& c, const MatvecShape& s);
// The fastest for that many rows, by its waves over the device.
TensorTile choose_tensor_tile(const Common& c, const MatvecShape& s, int rows);
Kernel gemm_tensor(const Common& c, const MatvecShape& s, const TensorTile& tile);

// The same on Metal's matrices. `depth`: columns of x that are in threadgroup memory at a time. wide: tiles of floats,
// for weights that f16 has no room for. ahead: the next tile is loaded beside the products of this one.
bool simd_fits(const Common& c, const MatvecShape& s);
struct SimdTile {
    int rows, columns, depth;
    bool wide, ahead;
    bool operator==(const SimdTile&) const = default;
};
// Every tile that can be used; all give the same bits.
std::vector<SimdTile> simd_tiles(const Common& c, const MatvecShape& s);
SimdTile choose_simd_tile(const Common& c, const MatvecShape& s, int rows);
Kernel gemm_simd(const Common& c, const MatvecShape& s, const SimdTile& tile);

// The same by Metal 4's matmul2d. Every tile that can be used, the default first; they may differ in the order of sums.
bool matmul2d_fits(const Common& c, const MatvecShape& s);
std::vector<SimdTile> matmul2d_tiles(const Common& c, const MatvecShape& s);
Kernel gemm_matmul2d(const Common& c, const MatvecShape& s, const SimdTile& tile);

Kernel embed(const Common& c, const Weight& table, float scale);
// `formula` is ignored without a weight. x, weight, residual and y as the launch names them.
struct NormShape {
    int width = 0, groups = 1;
    bool weight = true, residual = false, output_rows = false;
    NormFormula formula = NormFormula::two_rounding;
    float eps = 0;
    const char *x = "x", *w = "weight", *y = "y";   // operand names
};
Kernel norm(const Common& c, const NormShape& s);
Kernel add(const Common& c, int width);
Kernel scale(const Common& c, int width, float factor, bool weight);
Kernel act_mul(const Common& c, int width, int up_stride, int up_offset, ActKind act);
Kernel take_rows(const Common& c, int width);
Kernel head_gate(const Common& c, int heads, int head_dim);

struct AttentionShape {
    int n_heads = 0, n_kv_heads = 0, head_dim = 0, capacity = 0;
    float scale = 1, softcap = 0;
    int window = 0;
    bool fused = false;        // attention_decode prepares what it reads, as qk_prepare does: for steps of one row
    // attention_decode does what attention_combine does, in the same launch, for steps whose positions are below
    // attention_merged(): into "out", with "gates" (what attention_combine calls "q") where `gates`, and "arrivals",
    // words that are 0 between launches, one for each row and head.
    bool merges = false, gates = false;
    bool far = false;          // attention_decode of one row from position attention_near() on
    // qk_prepare, and attention_decode where it is fused; attention_combine: gated, it applies the gate in operand "q"
    bool writes = true, q_norm = false, k_norm = false, gated = false, v_norm = false, v_from_k = false;
    NormFormula formula = NormFormula::two_rounding;
    float eps = 0;
    int rope_half = 0;
};
// Positions of a part of the cache in decode attention, and the parts a row can have.
int attention_part(int capacity);
int attention_parts(int capacity, int window);
// Positions of rows whose parts attention_decode can merge: their number (INT_MAX: every row).
int attention_merged(const Common& c, const AttentionShape& s);
// Position of a row from which attention_decode does better with `far` (INT_MAX: none), to the same bits.
int attention_near(const Common& c, const AttentionShape& s);
std::uint64_t attention_partial_bytes(int rows, int heads, int head_dim, int capacity);
Kernel qk_prepare(const Common& c, const AttentionShape& s);
Kernel attention_decode(const Common& c, const AttentionShape& s);
// Query heads that a threadgroup serves with one read of keys and values, the default first.
std::vector<int> attention_packings(const Common& c, const AttentionShape& s);
Kernel attention_decode(const Common& c, const AttentionShape& s, int packing);
Kernel attention_combine(const Common& c, const AttentionShape& s);
Kernel attention_prefill(const Common& c, const AttentionShape& s);
// Prefill on tensor cores.
bool flash_fits(const Common& c, const AttentionShape& s);
Kernel attention_flash(const Common& c, const AttentionShape& s);
// Prefill on Metal's matrices. rows: of a simdgroup, 8 or 16. shared: keys and values take turns in one tile.
bool simd_flash_fits(const Common& c, const AttentionShape& s);
struct SimdFlashTile {
    int simdgroups, rows, keys;
    bool shared;
    bool operator==(const SimdFlashTile&) const = default;
};
// Every tile that can be used, the default first.
std::vector<SimdFlashTile> simd_flash_tiles(const Common& c, const AttentionShape& s);
Kernel attention_simd(const Common& c, const AttentionShape& s, const SimdFlashTile& tile);

// Gated DeltaNet; kernels/delta says what each computes. Any number of rows.
struct DeltaShape {
    int n_k_heads = 0, n_v_heads = 0, k_dim = 0, v_dim = 0, conv_kernel = 4;
    bool tiled_heads = false, negative_exp = false;
    int channels() const { return 2 * n_k_heads * k_dim + n_v_heads * v_dim; }
};
Kernel conv(const Common& c, const DeltaShape& s);
Kernel delta(const Common& c, const DeltaShape& s);
bool delta_tensor_fits(const Common& c, const DeltaShape& s);   // whether delta() takes rows in chunks, on tensor cores
Kernel gated_norm(const Common& c, int heads, int width, float eps, const char* weight = "weight", const char* y = "y");

// The arg-max of the first row of "logits" made the next step's token: two kernels. "parts": pick_parts_bytes(),
// "picked": a word for each step since the host wrote the step record.
std::vector<Kernel> pick(const Common& c, std::int64_t vocab);
std::size_t pick_parts_bytes();

// Mixture of experts; kernels/experts says what each computes.
struct RouteShape {
    int experts = 0, per_token = 0;
    bool normalise = true, round_weights = true, scaled = false;
    float logit_scale = 1;
};
Kernel route(const Common& c, const RouteShape& s);
Kernel group(const Common& c, int experts, int per_token);
std::size_t group_table_words(int experts, int per_token, int rows);
// w, w2: of expert 0; the planes of the others follow, expert_stride() bytes from one to the next. scaled: global
// scales differ, operand "globals" has them, [1 or 2][experts].
struct ExpertShape {
    const Weight *w = nullptr, *w2 = nullptr;
    int experts = 0, per_token = 0;
    bool per_choice = false, scaled = false;
    ActKind act = ActKind::silu;
};
std::size_t expert_stride(const Weight& w, int plane);
Kernel expert_matvec(const Common& c, const ExpertShape& s);
// On matrix units where they are right for the weight.
Kernel expert_gemm(const Common& c, const ExpertShape& s);
MatvecShape one_matrix(const ExpertShape& s);   // of an expert, for what fits and which tiles there are
Kernel expert_gemm_simd(const Common& c, const ExpertShape& s, const SimdTile& tile);
Kernel expert_gemm_tensor(const Common& c, const ExpertShape& s, const TensorTile& tile);
struct CombineShape {
    int per_token = 0, width = 0, experts = 0;
    bool table = false, shared = false, residual = false;
};
Kernel combine(const Common& c, const CombineShape& s);

}  // namespace forge::gpu
