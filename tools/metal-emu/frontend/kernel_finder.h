// Finds the kernels of a source, also those that templates make by host_name, and its function constants.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/token_text.h"

namespace metal_emu {

struct KernelFinder : TokenText {
    using TokenText::TokenText;
    std::vector<Function> functions;
    std::vector<FunctionConstant> constants;
    // When set, declarations of constants are replaced by their values.
    const std::vector<FunctionConstant>* constant_values = nullptr;

    // Fills `functions`, and drops explicit instantiations from the text.
    void find_kernels();
    // Fills `constants`.
    void find_constants();

  private:
    void explicit_instantiation(int& i);
    bool kernel_definition(int i);
    void find_parameters(Function& f, int a, int b);  // a: after (, b: at )
    void number_parameters(Function& f);
    int before_attributes(int i) const;
    std::string host_name(int a, int e) const;
    std::map<std::string, Function> definitions_;
    std::vector<Function> instantiations_;
};

}  // namespace metal_emu
