// MSL -> C++ for clang, in place: casts and constructors of vectors become calls, threadgroup variables
// references into an arena, unsuffixed literals floats; attributes go.
#pragma once

#include <set>
#include <string>

#include "frontend/expressions.h"

namespace metal_emu {

struct Rewriter : Expressions {
    using Expressions::Expressions;

    // Without address spaces, overloads that differ only by them are one: the first stays. [i, end)
    void drop_repeated_overloads(int i, int end);
    // A member function qualified by an address space: the one for `thread` stays.
    void drop_qualified_members();
    // A parameter `constant T name[N]` is a pointer.
    void array_parameters();
    void rewrite();

  private:
    void literal(int i);
    void template_parameters(int i);
    bool threadgroup_variable(int& i);
    bool constructor(int i);
    bool vector_constructor(int i);
    bool cast(int& i);
    int qualified_start(int i) const;
    int threadgroup_variables_ = 0;
    std::set<std::string> seen_heads;
};

}  // namespace metal_emu
