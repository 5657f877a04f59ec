// Just enough of the grammar of expressions to find casts and constructors.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/kernel_finder.h"

namespace metal_emu {

struct Expressions : KernelFinder {
    using KernelFinder::KernelFinder;

  protected:
    // Collects the names of types: MSL's own and those that the source declares.
    void find_types();
    bool is_type_parameter(const std::string& s) const;
    // A type's name standing alone in [a, b): 1 a vector or dependent, 2 a scalar, 3 a pointer or other, 0 no
    // type.
    int type_kind(int a, int b) const;
    bool operand_starts(int i) const;
    // One past the cast-expression that starts at i.
    int operand_end(int i) const;
    bool only_type_arguments(int a, int b) const;
    // True when [a, b) compares at its top level, so that a vector of truth values comes out.
    bool has_comparison(int a, int b) const;
    // True when an identifier stands before the (qualified) name at i: it is declared there, not called.
    bool follows_identifier(int i) const;

    std::set<std::string> vector_types, scalar_types;
    std::set<std::string> alias_types;  // using X = ...: may be a vector
    // Type parameters of templates, each valid until a position.
    std::vector<std::pair<std::string, int>> type_parameters;
};

}  // namespace metal_emu
