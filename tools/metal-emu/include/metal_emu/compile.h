// MSL text -> machine code for this computer, through clang. The text is the one that a Mac compiles;
// only attributes, casts and threadgroup variables are respelled for C++ (frontend/).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "metal_emu/launch.h"

namespace metal_emu {

struct Parameter {
    std::string type, name;
    std::string attribute;  // "buffer", "threadgroup", "threadgroup_position_in_grid", ...
    std::string condition;  // function constant that switches the parameter on
    int index = -1;         // of a buffer or threadgroup parameter
};

struct Function {
    std::string name;        // host name
    std::string base;        // name in the source
    std::string expression;  // how C++ calls it: f or f<args>
    std::vector<Parameter> parameters;
    bool is_template = false;
};

struct FunctionConstant {
    int index = -1;
    std::string name, type, value;
};

struct Library {
    std::string source;
    std::string file = "kernels.metal";  // as findings name it
    std::vector<Function> functions;
    bool preprocessed = false;  // the source came from preprocess()
};

// Kernels of a text. `error` says what could not be read.
Library parse(const std::string& source, std::string* error);
// Declared function constants.
std::vector<FunctionConstant> declared_constants(const std::string& source);
// A file with its includes and macros resolved; Metal's own headers stay out.
std::string preprocess(const std::string& path, const std::vector<std::string>& include_folders,
                       const std::vector<std::string>& defines, std::string* error);

// How the elements of an 8x8 matrix lie in a simdgroup's lanes: real chips differ, so profiles do.
enum class Profile : std::uint8_t { m1, m3, m5 };

struct CompileOptions {
    bool check = false;          // instrument every access
    bool address_spaces = true;  // misuse of an address space is a compile error
    bool syntax_only = false;
    bool cache = true;             // keep and reuse the machine code
    bool cxx17 = false;            // foreign kernels
    bool loose_alignment = false;  // vectors at any 4-byte address
    bool zero_tensors = false;     // cooperative tensors begin at 0, as some kernels suppose, not as NaN
    Profile profile = Profile::m1;
};

struct Compiled {
    std::map<std::string, Entry, std::less<>> entries;  // by host name; empty when it failed
    std::string log;                                    // the compiler's, empty when it had nothing to say
    const void *image_low = nullptr, *image_high = nullptr;
    bool ok = false;
};

// Compiles `names` (all functions when empty) with these constants. The machine code stays loaded.
Compiled compile(const Library& library, const std::vector<std::string>& names,
                 const std::vector<FunctionConstant>& constants, const CompileOptions& options);

// Pointers and references without an address space, "kernels.metal:3: 'p' is 'float *'": an error on a Mac
// that C++ does not know.
std::vector<std::string> unqualified(const Library& library);

// False with a sentence when the compiler that kernels need is not on this machine.
bool compiler_available(std::string* reason);

}  // namespace metal_emu
