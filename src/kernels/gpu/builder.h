// Small helpers with which the registry's rows spell entry points.
#pragma once

#include <fmt/format.h>

#include <string>

#include "kernels/gpu/registry.h"

namespace forge::gpu {

// Threads of a norm, and of a product that a norm is fused into: the order of its sum depends on them.
inline constexpr int kNormThreads = 256;

// A float as a literal that both languages read exactly.
std::string literal(float value);
// fk::Bf16 and its storage.
const char* type_name(DType type);
const char* storage(DType type);
// Template arguments that describe a weight's format, and the planes it has.
std::string format_type(const Weight& w, bool fast);

// A parameter's name in the text.
std::string c_name(std::string name);
// The name is made of everything that the entry's text depends on.
void name_kernel(Kernel& kernel);

// Collects parameters in the order in which the body takes them.
class EntryBuilder {
  public:
    explicit EntryBuilder(std::string family) { kernel_.family = std::move(family); }
    // Returns the name under which the body sees the buffer.
    std::string read(const std::string& name, const std::string& type);
    std::string write(const std::string& name, const std::string& type);
    // An argument that the body does not touch: any pointer of that type.
    static std::string absent(const std::string& type) { return "(DEVICE const " + type + "*)step"; }
    // A vector of floats, bound as a dense weight; `there`: whether the launch has it.
    std::string vector(bool there, const std::string& operand) {
        return there ? "(DEVICE const float*)" + read(operand + ".codes", "uchar") : absent("float");
    }
    static std::string absent_output(const std::string& type) { return "(DEVICE " + type + "*)(ulong)0"; }
    // Declares fk::Planes `variable` of an operand.
    void planes(const std::string& variable, const std::string& operand, const Weight& w);
    std::string array(const std::string& name, const std::string& type, int count);
    void statement(const std::string& text) { kernel_.body += "    " + text + "\n"; }
    Kernel finish(int threads, const Grid& grid);

  private:
    Kernel kernel_;
};

// The parameters of a product of packed rows, in the order in which every such body takes them.
struct ProductNames { std::string step, x, bias, bias2, residual, y, y32; };
ProductNames product_parameters(EntryBuilder& b, const Common& c, const MatvecShape& s);

inline int divide_up(long a, long b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace forge::gpu
