// Type traits.
#pragma once

namespace metal {
// ---- type traits
template <class T, T v>
struct integral_constant {
    static constexpr T value = v;
    typedef T value_type;
    typedef integral_constant type;
    constexpr operator T() const { return v; }
    constexpr T operator()() const { return v; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;
template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F>
struct conditional {
    typedef T type;
};
template <class T, class F>
struct conditional<false, T, F> {
    typedef F type;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;
template <class T>
struct remove_reference {
    typedef T type;
};
template <class T>
struct remove_reference<T&> {
    typedef T type;
};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
struct remove_cv {
    typedef __remove_cv(T) type;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
struct remove_const {
    typedef __remove_const(T) type;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
struct is_floating_point : bool_constant<__is_floating_point(T)> {};
template <>
struct is_floating_point<half> : true_type {};
template <>
struct is_floating_point<bfloat> : true_type {};
template <class T>
struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T>
struct is_signed : bool_constant<is_floating_point<T>::value || __is_signed(T)> {};
template <class T>
struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T>
struct is_pointer : bool_constant<__is_pointer(T)> {};
template <class T>
struct is_class : bool_constant<__is_class(T)> {};
template <class A, class B>
struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
template <class A, class B>
struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class T>
struct is_trivial : bool_constant<__is_trivially_copyable(T)> {};
template <class T>
T&& declval();
template <class T>
struct remove_addrspace {
    typedef T type;
};
#ifdef EMU_ADDRESS_SPACES
template <class T>
struct remove_addrspace<__attribute__((address_space(1))) T> {
    typedef T type;
};
template <class T>
struct remove_addrspace<__attribute__((address_space(2))) T> {
    typedef T type;
};
template <class T>
struct remove_addrspace<__attribute__((address_space(3))) T> {
    typedef T type;
};
#endif
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T>
using uniform = T;
template <class T>
METAL_FUNC constexpr T make_uniform(T x) {
    return x;
}
struct os_log {
    constexpr os_log(const char*, const char*) {}
    template <class... A>
    void log_debug(const char*, A...) const {}
    template <class... A>
    void log(const char*, A...) const {}
};
#ifdef EMU_CXX17
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class A, class B>
constexpr bool is_convertible_v = is_convertible<A, B>::value;
template <class A, class B>
constexpr bool is_base_of_v = is_base_of<A, B>::value;
template <class T>
constexpr bool is_pointer_v = is_pointer<T>::value;
#endif
template <class T, size_t N>
struct array {
    T _a[N];
    constexpr T& operator[](size_t i) { return _a[i]; }
    constexpr const T& operator[](size_t i) const { return _a[i]; }
    constexpr size_t size() const { return N; }
};
template <class A, class B>
struct pair {
    A first;
    B second;
};

template <class D, class S>
METAL_FUNC D as_type(S s) {
    return __builtin_bit_cast(D, s);
}

}  // namespace metal
