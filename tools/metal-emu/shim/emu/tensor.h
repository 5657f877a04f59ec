// Views of memory with extents and strides (metal_tensor). Dimension 0 is the innermost.
#pragma once

namespace metal {

constexpr size_t dynamic_extent = (size_t)-1;
template <class T>
constexpr T dynamic_length_v = (T)dynamic_extent;

template <class I, size_t... E>
struct extents {
    typedef I index_type;
    static constexpr size_t _static[sizeof...(E)] = {E...};
    I _n[sizeof...(E)];
    static constexpr size_t rank() { return sizeof...(E); }
    static constexpr size_t rank_dynamic() { return ((E == dynamic_extent ? 1u : 0u) + ...); }
    static constexpr size_t static_extent(size_t i) { return _static[i]; }
    constexpr extents() {
        for (size_t i = 0; i < rank(); i++) _n[i] = _static[i] == dynamic_extent ? (I)0 : (I)_static[i];
    }
    // All extents, or only those that are not static.
    template <class A, class... R>
    constexpr extents(A first, R... rest) {
        static_assert(sizeof...(R) + 1 == sizeof...(E) || sizeof...(R) + 1 == rank_dynamic(), "extents: wrong number of values");
        const I given[] = {(I)first, (I)rest...};
        size_t next = 0;
        for (size_t i = 0; i < rank(); i++) {
            const bool takes = sizeof...(R) + 1 == sizeof...(E) || _static[i] == dynamic_extent;
            _n[i] = _static[i] != dynamic_extent ? (I)_static[i] : given[next];
            if (takes) next++;
        }
    }
    constexpr I extent(size_t i) const { return _n[i]; }
};
template <class I, size_t R, size_t... E>
struct _dextents : _dextents<I, R - 1, dynamic_extent, E...> {};
template <class I, size_t... E>
struct _dextents<I, 0, E...> {
    typedef extents<I, E...> type;
};
template <class I, size_t R>
using dextents = typename _dextents<I, R>::type;

// Where a tensor's description lies: made by the host, or in the kernel.
struct tensor_handle {};
struct tensor_offset {};
struct tensor_inline {};

template <class T, class E, class D = tensor_handle, class... Tags>
struct tensor {
    typedef T element_type;
    typedef remove_cv_t<remove_addrspace_t<T>> value_type;
    typedef E extents_type;
    typedef typename E::index_type index_type;
    T* _p;
    E _e;
    long _s[E::rank()];

    METAL_FUNC tensor(T* p, E e) : _p(p), _e(e) {
        long step = 1;
        for (size_t i = 0; i < E::rank(); i++) {
            _s[i] = step;
            step *= (long)e.extent(i);
        }
    }
    template <class S>
    METAL_FUNC tensor(T* p, E e, array<S, E::rank()> strides) : _p(p), _e(e) {
        for (size_t i = 0; i < E::rank(); i++) _s[i] = (long)strides[i];
    }
    static constexpr size_t get_rank() { return E::rank(); }
    static constexpr size_t get_static_extent(size_t i) { return E::static_extent(i); }
    METAL_FUNC index_type get_extent(size_t i) const { return _e.extent(i); }
    METAL_FUNC index_type get_stride(size_t i) const { return (index_type)_s[i]; }
    template <class I>
    METAL_FUNC T& operator[](array<I, E::rank()> at) const {
        long offset = 0;
        for (size_t i = 0; i < E::rank(); i++) offset += (long)at[i] * _s[i];
        return _p[offset];
    }
    // slice<A, B>(origin...): static extents are taken as they are, also past the end of this tensor;
    // dynamic ones, and all of slice(origin...), end where it ends.
    template <size_t... S, class... I>
    METAL_FUNC auto slice(I... origin) const {
        static_assert(sizeof...(I) == E::rank(), "slice: one origin for each dimension");
        const long from[] = {(long)origin...};
        if constexpr (sizeof...(S) == 0) {
            return _slice<dextents<index_type, E::rank()>>(from);
        } else {
            static_assert(sizeof...(S) == E::rank(), "slice: one extent for each dimension");
            return _slice<extents<index_type, S...>>(from);
        }
    }

  private:
    template <class X>
    METAL_FUNC tensor<T, X, tensor_offset> _slice(const long* from) const {
        X e;
        array<long, E::rank()> strides;
        T* p = _p;
        for (size_t i = 0; i < E::rank(); i++) {
            const long left = (long)_e.extent(i) - from[i];
            if (X::static_extent(i) == dynamic_extent) e._n[i] = (index_type)(left > 0 ? left : 0);
            strides[i] = _s[i];
            p += from[i] * _s[i];
        }
        return tensor<T, X, tensor_offset>(p, e, strides);
    }
};
template <class T, class I, size_t... E>
tensor(T*, extents<I, E...>) -> tensor<T, extents<I, E...>, tensor_inline>;
template <class T, class I, size_t... E, class S, size_t N>
tensor(T*, extents<I, E...>, array<S, N>) -> tensor<T, extents<I, E...>, tensor_inline>;

template <class T>
struct _is_tensor : false_type {};
template <class T, class E, class D, class... Tags>
struct _is_tensor<tensor<T, E, D, Tags...>> : true_type {};

// Who works together.
struct execution_thread {
    static constexpr int _lanes = 1, _simdgroups = 1;
};
struct execution_simdgroup {
    static constexpr int _lanes = 32, _simdgroups = 1;
};
template <int N>
struct execution_simdgroups {
    static constexpr int _lanes = 32, _simdgroups = N;
};

}  // namespace metal
