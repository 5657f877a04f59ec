// A tile whose elements are spread over the threads of an execution scope. Which thread holds which element is
// the chip's matter: a kernel asks (get_multidimensional_index), or uses load and store.
#pragma once

namespace metal {

// Of a tile of R rows of C elements: element i of a thread. Profiles place elements differently.
template <int C, int R, class Scope>
struct _placement {
    static constexpr int kThreads = (int)Scope::_lanes * (int)Scope::_simdgroups;
#if EMU_MATRIX_LAYOUT == 1   // dealt out one by one, row after row
    static constexpr int capacity() { return (C * R + kThreads - 1) / kThreads; }
    static METAL_FUNC void find(int i, unsigned lane, unsigned simdgroup, int& c, int& r) {
        const int at = i * kThreads + (int)(simdgroup * Scope::_lanes + lane);
        r = at / C;
        c = at % C;
    }
#else
    // In fragments; whole ones go to the simdgroups in turn, row after row of fragments.
#if EMU_MATRIX_LAYOUT == 2   // 16x16, a lane has four neighbours of a row, and those of the row 8 further down
    static constexpr int kSide = 16, kElements = 8;
    static METAL_FUNC void within(int i, unsigned lane, int& c, int& r) {
        const int q = (int)(lane >> 2);
        r = ((q & 4) | (int)((lane >> 1) & 3)) + (i >> 2) * 8;
        c = ((q & 2) | (int)(lane & 1)) * 4 + i % 4;
    }
#else   // 8x8, as simdgroup_matrix
    static constexpr int kSide = 8, kElements = 2;
    static METAL_FUNC void within(int i, unsigned lane, int& c, int& r) {
        r = _fm(lane);
        c = _fn(lane) + i;
    }
#endif
    static constexpr int kColumns = (C + kSide - 1) / kSide, kFragments = kColumns * ((R + kSide - 1) / kSide);
    static constexpr int capacity() {
        return Scope::_lanes == 1 ? C * R : (kFragments + Scope::_simdgroups - 1) / Scope::_simdgroups * kElements;
    }
    static METAL_FUNC void find(int i, unsigned lane, unsigned simdgroup, int& c, int& r) {
        if (Scope::_lanes == 1) {
            r = i / C;
            c = i % C;
            return;
        }
        const int fragment = i / kElements * (int)Scope::_simdgroups + (int)simdgroup;
        within(i % kElements, lane, c, r);
        r += fragment / kColumns * kSide;
        c += fragment % kColumns * kSide;
    }
#endif
};

// What a tile begins as.
template <class T, bool Integer = is_integral<T>::value>
struct _unwritten {
#ifdef EMU_ZERO_TENSORS
    static METAL_FUNC T value() { return (T)0.0f; }
#else
    static METAL_FUNC T value() { return (T)__builtin_nanf(""); }
#endif
};
template <class T>
struct _unwritten<T, true> {
#ifdef EMU_ZERO_TENSORS
    static METAL_FUNC T value() { return (T)0; }
#else
    static METAL_FUNC T value() { return (T)0x5a5a5a5a; }
#endif
};

template <class Scope>
METAL_FUNC unsigned _simdgroup_of(const char* f, int l) {
    return Scope::_lanes == 1 ? 0 : emu_scope(Scope::_simdgroups, f, l);
}
template <class Scope>
METAL_FUNC unsigned _lane_of() {
    return Scope::_lanes == 1 ? 0 : emu_lane();
}
// All lanes are here.
template <class Scope>
METAL_FUNC void _meet(unsigned operation, const char* f, int l) {
    if (Scope::_lanes != 1) _xchg(operation, operation, f, l);
}

template <class T, int C, int R, class Scope>
struct cooperative_tensor {
    typedef T element_type;
    typedef _placement<C, R, Scope> _where;
    typedef array<int, 2> index_type;
    T _e[_where::capacity()];
    unsigned _lane, _simdgroup;

    METAL_FUNC explicit cooperative_tensor(const char* f, int l) : _lane(_lane_of<Scope>()), _simdgroup(_simdgroup_of<Scope>(f, l)) {
        for (int i = 0; i < _where::capacity(); i++) _e[i] = _unwritten<T>::value();   // NaN shows
    }
    static constexpr uint16_t get_capacity() { return (uint16_t)_where::capacity(); }
    METAL_FUNC index_type get_multidimensional_index(int i) const {
        index_type at;
        _where::find(i, _lane, _simdgroup, at[0], at[1]);
        return at;
    }
    // Places of the last fragments may lie outside of the tile.
    METAL_FUNC bool is_valid_element(int i) const {
        const index_type at = get_multidimensional_index(i);
        return at[0] < C && at[1] < R;
    }
    METAL_FUNC bool get_mask(int i) const { return is_valid_element(i); }
    METAL_FUNC T& operator[](int i) { return _e[i]; }
    METAL_FUNC const T& operator[](int i) const { return _e[i]; }

    // Over the valid elements of this thread.
    template <class Tile, class Element>
    struct _iterator {
        Tile* tile;
        int i;
        METAL_FUNC Element& operator*() const { return tile->_e[i]; }
        METAL_FUNC index_type get_multidimensional_index() const { return tile->get_multidimensional_index(i); }
        METAL_FUNC _iterator& operator++() {
            do i++;
            while (i < _where::capacity() && !tile->is_valid_element(i));
            return *this;
        }
        METAL_FUNC _iterator operator++(int) {
            const _iterator before = *this;
            ++*this;
            return before;
        }
        METAL_FUNC bool operator==(const _iterator& o) const { return i == o.i; }
        METAL_FUNC bool operator!=(const _iterator& o) const { return i != o.i; }
    };
    typedef _iterator<cooperative_tensor, T> iterator;
    typedef _iterator<const cooperative_tensor, const T> const_iterator;
    METAL_FUNC iterator begin() { return first(iterator{this, -1}); }
    METAL_FUNC iterator end() { return iterator{this, _where::capacity()}; }
    METAL_FUNC const_iterator begin() const { return first(const_iterator{this, -1}); }
    METAL_FUNC const_iterator end() const { return const_iterator{this, _where::capacity()}; }

    // Elements outside of the tensor's extents are loaded as 0 and not stored.
    template <class X>
    METAL_FUNC void load(const X& t, _LOC) {
        _meet<Scope>(60, _f, _l);
        for (int i = 0; i < _where::capacity(); i++) {
            const index_type at = get_multidimensional_index(i);
            _e[i] = inside(t, at) ? (T)t[at] : (T)0;
        }
    }
    template <class X>
    METAL_FUNC void store(const X& t, _LOC) const {
        _meet<Scope>(61, _f, _l);
        for (int i = 0; i < _where::capacity(); i++) {
            const index_type at = get_multidimensional_index(i);
            if (inside(t, at)) t[at] = (typename X::value_type)_e[i];
        }
    }

  private:
    template <class I>
    static METAL_FUNC I first(I before) {
        return ++before;
    }
    template <class X>
    static METAL_FUNC bool inside(const X& t, index_type at) {
        static_assert(_is_tensor<X>::value && X::get_rank() == 2, "a cooperative tensor is loaded from and stored to a tensor of two dimensions");
        return at[0] < C && at[1] < R && at[0] < t.get_extent(0) && at[1] < t.get_extent(1);
    }
};
template <class T>
struct _is_cooperative : false_type {};
template <class T, int C, int R, class Scope>
struct _is_cooperative<cooperative_tensor<T, C, R, Scope>> : true_type {};

}  // namespace metal
