#include "frontend/translate.h"

#include <map>

#include "frontend/rewriter.h"

namespace metal_emu {
namespace {

// Calls a kernel with arguments of whatever types it declares. Its threads' ids come in the layout of
// ThreadIds (metal_emu/launch.h).
constexpr const char* kEntryHelpers = R"(
struct emu_ids { uint tg[3], tid[3], threads[3], grid[3], lane, simdgroup, index, simdgroups; };
namespace emu_entries {
using namespace metal;
static inline uint3 triple(const uint* p) { return uint3{p[0], p[1], p[2]}; }
template <class D, int N> struct position;
template <class D> struct position<D, 1> { static D of(uint3 v) { return (D)v.x; } };
template <class D> struct position<D, 2> { static D of(uint3 v) { D d; d[0] = v.x; d[1] = v.y; return d; } };
template <class D> struct position<D, 3> { static D of(uint3 v) { D d; d[0] = v.x; d[1] = v.y; d[2] = v.z; return d; } };
template <int K, class... A> struct nth;
template <class A, class... R> struct nth<0, A, R...> { typedef A type; };
template <int K, class A, class... R> struct nth<K, A, R...> : nth<K - 1, R...> {};
template <class F> struct arguments;
template <class R, class... A> struct arguments<R(A...)> { template <int K> using at = typename nth<K, A...>::type; };
template <class A> struct memory { static A of(void* p) { return (A)p; } };
template <class A> struct memory<A&> { static A& of(void* p) { return *(A*)p; } };
template <class A> struct ids { static A of(uint3 v) { return position<A, _vt<A>::n>::of(v); } };
template <class A> struct ids<const A> : ids<A> {};
#ifdef EMU_TENSOR
template <class T> inline T bound_tensor(void* p, unsigned index) {
    const long* shape = emu_tensor_shape(index);
    typename T::extents_type e;
    bool dense = true;
    metal::array<long, T::get_rank()> strides;
    for (size_t i = 0; i < T::get_rank(); i++) {
        if (T::get_static_extent(i) == dynamic_extent) e._n[i] = (typename T::index_type)shape[i];
        strides[i] = shape[T::get_rank() + i];
        dense = dense && strides[i] == 0;
    }
    typedef decltype(T::_p) P;
    return dense ? T((P)p, e) : T((P)p, e, strides);
}
#endif
}
)";

// A tensor by value: its description is the host's.
bool is_tensor(const Parameter& p) {
    return p.type.find("tensor<") != std::string::npos && p.type.find_last_of("*&") == std::string::npos;
}

// An argument's expression; empty for an attribute that is not implemented.
std::string argument(const Parameter& p, const std::string& type) {
    static const std::map<std::string, std::string> positions = {
        {"threadgroup_position_in_grid", "tg"},
        {"thread_position_in_threadgroup", "thread_"},
        {"thread_position_in_grid", "tg * threads + thread_"},
        {"threads_per_threadgroup", "threads"},
        {"dispatch_threads_per_threadgroup", "threads"},
        {"threadgroups_per_grid", "grid"},
        {"threads_per_grid", "grid * threads"}};
    static const std::map<std::string, std::string> scalars = {
        {"thread_index_in_simdgroup", "i->lane"},
        {"simdgroup_index_in_threadgroup", "i->simdgroup"},
        {"thread_index_in_threadgroup", "i->index"},
        {"simdgroups_per_threadgroup", "i->simdgroups"},
        {"threads_per_simdgroup", "32"},
        {"thread_execution_width", "32"},
        {"thread_index_in_quadgroup", "i->lane & 3"},
        {"quadgroup_index_in_threadgroup", "i->index / 4"},
        {"quadgroup_index_in_simdgroup", "i->lane / 4"}};
    const std::string index = std::to_string(p.index);
    if (p.attribute == "buffer" && is_tensor(p)) return "bound_tensor<" + type + ">(b[" + index + "], " + index + ")";
    if (p.attribute == "buffer") return "memory<" + type + ">::of(b[" + index + "])";
    if (p.attribute == "threadgroup") return "memory<" + type + ">::of(t[" + index + "])";
    if (const auto it = positions.find(p.attribute); it != positions.end())
        return "ids<" + type + ">::of(" + it->second + ")";
    if (const auto it = scalars.find(p.attribute); it != scalars.end()) return it->second;
    return "emu_does_not_know_the_attribute_" + p.attribute;
}

std::string entry(const Function& f, const std::string& name) {
    std::string r = "extern \"C\" __attribute__((visibility(\"default\"), no_sanitize(\"thread\"))) void " +
                    name +
                    "(void* const* b, void* const* t, const emu_ids* i) {\n  using namespace metal; using "
                    "namespace emu_entries;\n"
                    "  uint3 tg = triple(i->tg), thread_ = triple(i->tid), threads = "
                    "triple(i->threads), grid = triple(i->grid);\n"
                    "  typedef arguments<decltype(" +
                    f.expression + ")> A;\n  " + f.expression + "(";
    for (std::size_t k = 0; k < f.parameters.size(); k++)
        r += (k ? ", " : "") + argument(f.parameters[k], "A::at<" + std::to_string(k) + ">");
    return r + ");\n}\n";
}

}  // namespace

Library parse(const std::string& source, std::string* error) {
    Library library;
    library.source = source;
    KernelFinder finder(source);
    finder.find_kernels();
    if (error) *error = finder.error;
    library.functions = finder.functions;
    return library;
}

std::vector<FunctionConstant> declared_constants(const std::string& source) {
    KernelFinder finder(source);
    finder.find_constants();
    return finder.constants;
}

std::string entry_name(std::size_t index) { return "emu_entry_" + std::to_string(index); }

std::string translate(const Library& library, const std::vector<const Function*>& functions,
                      const std::vector<FunctionConstant>& constants, bool address_spaces) {
    Rewriter source(library.source);
    source.find_kernels();
    source.constant_values = &constants;
    source.find_constants();
    if (library.preprocessed && !address_spaces) source.drop_repeated_overloads(0, source.n());
    source.drop_qualified_members();
    source.array_parameters();
    source.rewrite();
    std::string out = library.preprocessed ? "#include <metal_stdlib>\n" : "# 1 \"" + library.file + "\"\n";
    out += source.out() + "\n# 1 \"entries\"\n" + kEntryHelpers;
    for (std::size_t k = 0; k < functions.size(); k++) out += entry(*functions[k], entry_name(k));
    return out;
}

}  // namespace metal_emu
