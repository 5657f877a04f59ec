// mpp::tensor_ops::matmul2d: the products of MetalPerformancePrimitives.
#pragma once

namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };
    int m, n, k;   // k may be metal::dynamic_extent: the operands decide
    bool transpose_left, transpose_right, relaxed_precision;
    mode matmul_mode;
    constexpr matmul2d_descriptor(int m_, int n_, int k_ = metal::dynamic_length_v<int>, bool left = false, bool right = false,
                                  bool relaxed = false, mode mode_ = mode::multiply)
        : m(m_), n(n_), k(k_), transpose_left(left), transpose_right(right), relaxed_precision(relaxed), matmul_mode(mode_) {}
};

// Left [m][k] times right [k][n]; in memory k is the innermost dimension of left and n of right, or the other
// way round where transposed.
template <matmul2d_descriptor Descriptor, class Scope, class... Args>
class matmul2d {
    static constexpr matmul2d_descriptor kShape = Descriptor;
    static constexpr int kM = kShape.m, kN = kShape.n;
    static constexpr bool kStatic = kShape.k != metal::dynamic_length_v<int>;
    static constexpr int kK = kStatic ? kShape.k : 32;   // of one piece
    static constexpr int kLanes = Scope::_lanes;
    static_assert((kM + kN) * kK <= 24 * 1024, "the emulator's threads have no room for tiles this large");
    template <class T>
    using left_t = metal::cooperative_tensor<T, (kShape.transpose_left ? kM : kK), (kShape.transpose_left ? kK : kM), Scope>;
    template <class T>
    using right_t = metal::cooperative_tensor<T, (kShape.transpose_right ? kK : kN), (kShape.transpose_right ? kN : kK), Scope>;
    template <class T>
    using destination_t = metal::cooperative_tensor<T, kN, kM, Scope>;

  public:
    template <class L, class R, class D, class I = int>
    METAL_FUNC left_t<L> get_left_input_cooperative_tensor(_LOC) const {
        static_assert(kStatic && Scope::_simdgroups == 1, "an input in registers wants a fixed k and one simdgroup");
        return left_t<L>(_f, _l);
    }
    template <class L, class R, class D, class I = int>
    METAL_FUNC right_t<R> get_right_input_cooperative_tensor(_LOC) const {
        static_assert(kStatic && Scope::_simdgroups == 1, "an input in registers wants a fixed k and one simdgroup");
        return right_t<R>(_f, _l);
    }
    template <class L, class R, class D, class I = int>
    METAL_FUNC destination_t<D> get_destination_cooperative_tensor(_LOC) const {
        return destination_t<D>(_f, _l);
    }

    template <class L, class R, class D>
    METAL_FUNC void run(const L& left, const R& right, D&& destination, _LOC) const {
        typedef metal::remove_reference_t<D> To;
        if constexpr (metal::_is_tensor<metal::remove_cv_t<To>>::value) {
            destination_t<typename To::value_type> tile(_f, _l);
            if (kShape.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate) tile.load(destination, _f, _l);
            product(left, right, tile, _f, _l);
            tile.store(destination, _f, _l);
        } else {
            product(left, right, destination, _f, _l);
        }
    }

  private:
    template <class X>
    static METAL_FUNC long depth(const X& operand, bool innermost) {
        if constexpr (metal::_is_tensor<X>::value) return (long)operand.get_extent(innermost ? 0 : 1);
        else return kK;
    }

    // This thread's share of an operand's tile at depth `from`, in the order in which `spread` takes it.
    template <class Sum, int C, int R, class X>
    static METAL_FUNC void gather(const X& operand, long from_c, long from_r, Sum* mine, unsigned lane) {
        for (int i = (int)lane, at = 0; i < C * R; i += kLanes, at++) {
            const long c = from_c + i % C, r = from_r + i / C;
            const bool inside = c < operand.get_extent(0) && r < operand.get_extent(1);
            mine[at] = inside ? (Sum)operand[metal::array<long, 2>{c, r}] : (Sum)0;
#if __has_feature(thread_sanitizer)
            // The operation reads with all lanes at once: also what another than this one could race with.
            const int j = i ^ 1;
            const long c2 = from_c + j % C, r2 = from_r + j / C;
            if (kLanes > 1 && j < C * R && c2 < operand.get_extent(0) && r2 < operand.get_extent(1))
                emu_also_read((const void*)&operand[metal::array<long, 2>{c2, r2}], sizeof(typename X::value_type));
#endif
        }
    }
    template <class Sum, int C, int R, class X>
    static METAL_FUNC void take(const X& operand, long from_c, long from_r, Sum* mine, unsigned lane) {
        if constexpr (metal::_is_tensor<X>::value) {
            gather<Sum, C, R>(operand, from_c, from_r, mine, lane);
        } else {
            static_assert(metal::_is_cooperative<X>::value, "matmul2d multiplies tensors and cooperative tensors");
            for (int i = 0; i < X::get_capacity(); i++) mine[i] = (Sum)operand._e[i];
        }
    }
    // Puts it where all lanes see the whole tile, [R][C].
    template <class X, class Sum, int C, int R>
    static EMU_UNCHECKED void spread(Sum* tile, const Sum* mine, unsigned lane) {
        if constexpr (metal::_is_tensor<X>::value) {
            for (int i = (int)lane, at = 0; i < C * R; i += kLanes, at++) tile[i] = mine[at];
        } else {
            for (int i = 0; i < X::get_capacity(); i++) {
                int c, r;
                X::_where::find(i, lane, 0, c, r);
                if (c < C && r < R) tile[r * C + c] = mine[i];
            }
        }
    }
    static constexpr int larger(int a, int b) { return a > b ? a : b; }
    template <class X, int C, int R>
    static constexpr int share() {
        if constexpr (metal::_is_tensor<X>::value) return (C * R + kLanes - 1) / kLanes;
        else return X::get_capacity();
    }

    // Lanes meet over tiles that lie on the first one's stack.
    template <class L, class R, class Sum, class D>
    static EMU_COLLECTIVE void multiply(const Sum* my_left, const Sum* my_right, int depth, D& to, Sum* sums, const char* f, int l) {
        constexpr int LC = kShape.transpose_left ? kM : kK, LR = kShape.transpose_left ? kK : kM;
        constexpr int RC = kShape.transpose_right ? kK : kN, RR = kShape.transpose_right ? kN : kK;
        Sum tiles[LC * LR + RC * RR];
        Sum* shared = tiles;
        if (kLanes > 1) shared = metal::_xchg(shared, 62, f, l)[0].v;
        spread<L, Sum, LC, LR>(shared, my_left, to._lane);
        spread<R, Sum, RC, RR>(shared + LC * LR, my_right, to._lane);
        metal::_meet<Scope>(63, f, l);
        for (int i = 0; i < D::get_capacity(); i++) {
            int n, m;
            D::_where::find(i, to._lane, to._simdgroup, n, m);
            if (n >= kN || m >= kM) continue;
            const Sum *a = shared + (kShape.transpose_left ? m : m * kK), *b = shared + LC * LR + (kShape.transpose_right ? n * kK : n);
            Sum sum = sums[i];
            for (int k = 0; k < depth; k++) sum += a[kShape.transpose_left ? k * kM : k] * b[kShape.transpose_right ? k : k * kN];
            sums[i] = sum;
        }
        metal::_meet<Scope>(64, f, l);   // before the first lane leaves
    }

    template <class L, class R, class D>
    static METAL_FUNC void product(const L& left, const R& right, D& to, const char* f, int l) {
        typedef metal::conditional_t<metal::is_integral<typename D::element_type>::value, int, float> Sum;
        constexpr int LC = kShape.transpose_left ? kM : kK, LR = kShape.transpose_left ? kK : kM;
        constexpr int RC = kShape.transpose_right ? kK : kN, RR = kShape.transpose_right ? kN : kK;
        if (kLanes > 1) emu_scope(Scope::_simdgroups, f, l);
        Sum sums[D::get_capacity()];
        for (int i = 0; i < D::get_capacity(); i++)
            sums[i] = kShape.matmul_mode == matmul2d_descriptor::mode::multiply ? (Sum)0 : (Sum)to._e[i];
        const long deep = kStatic ? kK : depth(left, !kShape.transpose_left);
        for (long k = 0; k < deep; k += kK) {
            Sum my_left[share<L, LC, LR>()], my_right[share<R, RC, RR>()];
            take<Sum, LC, LR>(left, kShape.transpose_left ? 0 : k, kShape.transpose_left ? k : 0, my_left, to._lane);
            take<Sum, RC, RR>(right, kShape.transpose_right ? k : 0, kShape.transpose_right ? 0 : k, my_right, to._lane);
            multiply<L, R>(my_left, my_right, kK, to, sums, f, l);
        }
        for (int i = 0; i < D::get_capacity(); i++) to._e[i] = (typename D::element_type)sums[i];
    }
};

}  // namespace tensor_ops
}  // namespace mpp
